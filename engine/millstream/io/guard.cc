#include "millstream/io/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>

namespace millstream {
namespace {

/// The guarded copy that this thread is running.
struct Guard {
  sigjmp_buf jump;
  MappedRange range;
  const std::byte* volatile fault = nullptr;
};

// The signal handler may run on a thread that never copied. Only the initial-exec model
// reads thread-local storage there without allocating.
[[gnu::tls_model("initial-exec")]] constinit thread_local Guard* current = nullptr;

/// A signal handler that the guard replaced, and the one that the guard replaced before
/// it. Never destroyed, because a signal may arrive at any time.
struct Previous {
  struct sigaction action {};
  Previous* before = nullptr;
  std::atomic<bool> called = false;
};

std::atomic<Previous*> previous{nullptr};

void pass_on(int signal, siginfo_t* info, void* context) {
  Previous* to = previous.load();
  // A handler that was installed after the guard may pass a fault back to the guard.
  // Then the next handler in the list gets the fault.
  const bool fault = info->si_code > 0;
  while (to->before != nullptr &&
         (fault ? to->called.exchange(true) : to->called.load())) {
    to = to->before;
  }
  const struct sigaction& action = to->action;
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
    action.sa_handler(signal);
  } else if (fault || action.sa_handler == SIG_DFL) {
    // A fault happens again when this returns. A signal that somebody sent must be
    // raised again.
    ::signal(signal, SIG_DFL);
    if (!fault) ::raise(signal);
  }
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  if (current != nullptr && info->si_code > 0 && current->range.holds(address)) {
    current->fault = address;
    // Restore the signal mask here. `siglongjmp` does not, so that a copy without a
    // fault needs no system call.
    const auto* interrupted = static_cast<const ucontext_t*>(context);
    ::pthread_sigmask(SIG_SETMASK, &interrupted->uc_sigmask, nullptr);
    siglongjmp(current->jump, 1);
  }
  // Another handler, e.g. Python's faulthandler, received the fault first, restored the
  // guard and raised the signal again. The fault happens again when this returns.
  const bool raised = info->si_code == SI_TKILL && info->si_pid == ::getpid();
  if (current == nullptr || !raised) pass_on(signal, info, context);
}

}  // namespace

void install_guard() {
  struct sigaction now {};
  struct sigaction guard {};
  guard.sa_sigaction = on_bus_error;
  guard.sa_flags = SA_SIGINFO | SA_ONSTACK;
  if (::sigaction(SIGBUS, nullptr, &now) != 0 || now.sa_sigaction == on_bus_error) {
    return;
  }
  auto* replaced = new Previous{now, previous.load()};
  while (!previous.compare_exchange_weak(replaced->before, replaced)) {
  }
  ::sigaction(SIGBUS, &guard, nullptr);
}

const std::byte* run_guarded(const MappedRange& range, void (*copy)(void*),
                             void* context) {
  Guard guard;
  guard.range = range;
  struct Restore {
    Guard* outer;
    ~Restore() { current = outer; }
  } const restore{current};
  if (sigsetjmp(guard.jump, 0) != 0) return guard.fault;
  current = &guard;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  copy(context);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return nullptr;
}

}  // namespace millstream
