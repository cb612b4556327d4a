#include "millstream/io/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <list>
#include <mutex>

namespace millstream {
namespace {

/// One guarded copy under way on this thread, and those around it.
struct Guard {
  sigjmp_buf jump;
  std::span<const MappedRange> ranges;
  Guard* outer;
  const std::byte* volatile fault;
};

// Initial-exec: the handler may run on a thread that never copied, where any other
// model could allocate.
[[gnu::tls_model("initial-exec")]] constinit thread_local Guard* innermost = nullptr;

/// A handler in whose place ours came, and those in whose place ours had come before.
/// Never destroyed: a thread may be at it.
struct Previous {
  struct sigaction action {};
  Previous* before = nullptr;
};

std::atomic<Previous*> previous{nullptr};

/// How long a thread trusts that all is in place: a look costs half a microsecond.
constexpr std::chrono::microseconds kTrust{100};

/// As if this library had never been there.
void pass_on(int signal, siginfo_t* info, void* context) {
  Previous* to = previous.load();
  const struct sigaction action = to->action;
  // One that came after ours gives its place back to ours when it has seen a fault, and
  // has it happen again; then it is the turn of those before.
  if (to->before != nullptr && info->si_code > 0) {
    previous.compare_exchange_strong(to, to->before);
  }
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
    action.sa_handler(signal);
  } else if (info->si_code > 0 || action.sa_handler == SIG_DFL) {
    // The kernel ignores no fault. Back at the instruction it happens again and ends
    // the process; a signal that was sent is sent again.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(signal, &standard, nullptr);
    if (info->si_code <= 0) ::raise(signal);
  }
}

/// Ends the copy of `guard`.
[[noreturn]] void leave(Guard& guard, const std::byte* fault, void* context) {
  guard.fault = fault;
  // The jump does not save and restore the mask: that would be a system call a copy,
  // where this is one a fault.
  ::pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask,
                    nullptr);
  siglongjmp(guard.jump, 1);
}

/// Whether this process sent the signal to itself, as a handler does that lets the one
/// before it have a fault.
bool is_raised(const siginfo_t& info) {
  return (info.si_code == SI_TKILL || info.si_code == SI_USER) &&
         info.si_pid == ::getpid();
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (info->si_code > 0) {
    const auto* address = static_cast<const std::byte*>(info->si_addr);
    for (Guard* guard = innermost; guard != nullptr; guard = guard->outer) {
      for (const MappedRange& range : guard->ranges) {
        if (range.holds(address)) leave(*guard, address, context);
      }
    }
  } else if (innermost != nullptr && is_raised(*info)) {
    leave(*innermost, &kUnknownFault, context);
  }
  pass_on(signal, info, context);
}

/// Sees that a fault of this thread would come to `on_bus_error`, unless it has of
/// late.
void see_to_guard() {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point seen;
  const Clock::time_point now = Clock::now();
  if (now - seen < kTrust) return;
  seen = now;
  sigset_t bus_error;
  ::sigemptyset(&bus_error);
  ::sigaddset(&bus_error, SIGBUS);
  ::pthread_sigmask(SIG_UNBLOCK, &bus_error, nullptr);
  install_guard();
}

}  // namespace

void install_guard() {
  static std::mutex mutex;
  static std::list<Previous>& all = *new std::list<Previous>;
  struct sigaction now {};
  if (::sigaction(SIGBUS, nullptr, &now) == 0 && now.sa_sigaction == on_bus_error) {
    return;
  }
  const std::lock_guard lock(mutex);
  struct sigaction ours {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  if (::sigaction(SIGBUS, nullptr, &now) != 0 || now.sa_sigaction == on_bus_error) {
    return;
  }
  previous = &all.emplace_back(Previous{now, previous});  // before ours can be called
  ::sigaction(SIGBUS, &ours, nullptr);
}

const std::byte* run_guarded(std::span<const MappedRange> ranges, void (*copy)(void*),
                             void* context) {
  see_to_guard();
  Guard guard;
  guard.ranges = ranges;
  guard.outer = innermost;
  guard.fault = nullptr;
  struct Restore {
    Guard* outer;
    ~Restore() { innermost = outer; }
  } const restore{innermost};
  if (sigsetjmp(guard.jump, 0) != 0) return guard.fault;
  innermost = &guard;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  copy(context);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return nullptr;
}

}  // namespace millstream
