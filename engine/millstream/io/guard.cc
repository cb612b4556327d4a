#include "millstream/io/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>

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

struct sigaction previous;

/// As if this library had never been there.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else if (info->si_code > 0 || previous.sa_handler == SIG_DFL) {
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

}  // namespace

void install_guard() {
  static const bool installed = [] {
    struct sigaction ours {};
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGBUS, nullptr, &previous);  // before ours can be called
    return ::sigaction(SIGBUS, &ours, nullptr) == 0;
  }();
  static_cast<void>(installed);
}

const std::byte* run_guarded(std::span<const MappedRange> ranges, void (*copy)(void*),
                             void* context) {
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
