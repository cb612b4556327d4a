#include <signal.h>

#include <atomic>
#include <memory>

#include "loader.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {
namespace {

// The signal handler uses these: the loader to cancel, and the previous handler.
std::atomic<Loader*> interrupted_loader{nullptr};
struct sigaction previous_action;

void on_interrupt(int number, siginfo_t* info, void* context) {
  if (Loader* loader = interrupted_loader.load()) loader->cancel();
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(number, info, context);
  } else if (previous_action.sa_handler != SIG_DFL &&
             previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(number);
  }
}

/// While it is entered, Ctrl-C also cancels the loader. A program that runs inside XLA
/// then ends at its next batch, and Python raises KeyboardInterrupt.
class Interruptible {
 public:
  Interruptible(const RegisteredLoader& loader, bool active)
      : loader_(loader.shared), active_(active) {}
  ~Interruptible() { exit(); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  void enter() {
    if (!active_) return;
    Loader* none = nullptr;
    entered_ = interrupted_loader.compare_exchange_strong(none, loader_.get());
    if (!entered_) return;
    struct sigaction action {};
    action.sa_sigaction = on_interrupt;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &previous_action);
  }

  /// Lets Python raise KeyboardInterrupt for a pending signal. Otherwise returns
  /// whether the loader was cancelled.
  bool interrupted() const {
    if (!active_) return false;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return loader_->cancelled();
  }

  void exit() {
    if (!entered_) return;
    sigaction(SIGINT, &previous_action, nullptr);
    interrupted_loader.store(nullptr);
    loader_->resume();
    entered_ = false;
  }

 private:
  std::shared_ptr<Loader> loader_;
  const bool active_;
  bool entered_ = false;
};

}  // namespace

void bind_signals(nb::module_& module) {
  // Written in C++, because Python could raise KeyboardInterrupt just before a Python
  // `__exit__` runs, and the signal handler would stay installed.
  nb::class_<Interruptible>(module, "Interruptible",
                            "While entered, Ctrl-C cancels the loader's next batch.")
      .def(nb::init<const RegisteredLoader&, bool>(), "loader"_a, "active"_a)
      .def_prop_ro("interrupted", &Interruptible::interrupted,
                   "Whether Ctrl-C was pressed since it was entered.")
      .def("__enter__", &Interruptible::enter)
      .def(
          "__exit__",
          [](Interruptible& self, nb::handle, nb::handle, nb::handle) { self.exit(); },
          "type"_a.none(), "value"_a.none(), "traceback"_a.none());
}

}  // namespace millstream::python
