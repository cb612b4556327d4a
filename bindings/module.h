#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "millstream/core/schema.h"

namespace millstream::python {

namespace nb = nanobind;

/// Keeps `object` alive for the engine. May be let go of on any thread, with the GIL or
/// without: the reference is then dropped when Python next has time for it.
std::shared_ptr<const void> shared_object(nb::handle object);

/// (name, dtype, shape) of each field.
nb::list described(const Schema& schema);

/// Where the interpreter has ended meanwhile it ends any thread that comes back to it.
/// Frames of C++ cannot be ended so: such a thread sleeps until the process is gone.
template <typename Body>
auto in_python(Body&& body) {
  try {
    return body();
  } catch (const abi::__forced_unwind&) {
    while (true) pause();
  }
}

/// Lets other threads of Python run for as long as it lives. A thread that waits in
/// here when the interpreter ends never leaves it.
class GilRelease {
 public:
  GilRelease() noexcept : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    in_python([this] { PyEval_RestoreThread(state_); });
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

/// What Python holds of something that the engine shares. The engine's own pointer is
/// inside, so that letting go of it on an engine thread never needs the GIL.
template <typename T>
struct Handle {
  std::shared_ptr<const T> shared;

  Handle(std::shared_ptr<const T> given) : shared(std::move(given)) {}
  Handle(const Handle&) = default;
  Handle(Handle&&) noexcept = default;
  Handle& operator=(const Handle&) = default;
  Handle& operator=(Handle&&) noexcept = default;
  ~Handle() {
    if (shared.use_count() != 1 || !PyGILState_Check()) return;
    const GilRelease released;  // a worker may need it to come to an end
    shared.reset();
  }
};

void bind_core(nb::module_& module);
void bind_disk_source(nb::module_& module);
void bind_ffi(nb::module_& module);
void bind_loader(nb::module_& module);
void bind_workers(nb::module_& module);
void bind_order(nb::module_& module);
void bind_rows(nb::module_& module);
void bind_signals(nb::module_& module);
void bind_source(nb::module_& module);
void bind_transform(nb::module_& module);

}  // namespace millstream::python
