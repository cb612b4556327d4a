#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "millstream/core/schema.h"

namespace millstream::python {

namespace nb = nanobind;

/// Keeps `object` alive for the engine. Any thread may release it, with or without the
/// GIL. Without the GIL, Python drops the reference later.
std::shared_ptr<const void> shared_object(nb::handle object);

/// (name, dtype, shape) of each field.
nb::list described(const Schema& schema);

/// (name, dtype, shape) of a field.
using FieldSpec = std::tuple<std::string, std::string, std::vector<std::int64_t>>;
Schema schema(const std::vector<FieldSpec>& specs);

/// Runs `body`, which calls Python. If the interpreter has shut down, it unwinds the
/// calling thread, but C++ frames must not be unwound that way. Such a thread sleeps
/// until the process exits.
template <typename Body>
auto in_python(Body&& body) {
  try {
    return body();
  } catch (const abi::__forced_unwind&) {
    while (true) pause();
  }
}

/// Releases the GIL for the lifetime of this object. If the interpreter shuts down
/// meanwhile, the thread never leaves the destructor.
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

/// A Python object that shares ownership of an engine object. The engine holds only
/// `shared`, so engine threads can release it without the GIL.
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
    const GilRelease released;  // a worker may need the GIL to end
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
