#include <nanobind/stl/string.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "millstream/core/error.h"
#include "module.h"

namespace millstream::python {
namespace {

/// References that were dropped without the GIL.
struct DeferredRelease {
  std::mutex mutex;
  std::vector<PyObject*> objects;
};

DeferredRelease& deferred_release() {
  static DeferredRelease& only = *new DeferredRelease;
  return only;
}

int release_deferred(void*) {
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(deferred_release().mutex);
    objects.swap(deferred_release().objects);
  }
  for (PyObject* object : objects) Py_DECREF(object);
  return 0;
}

void release(PyObject* object) {
  if (!Py_IsInitialized()) return;
  if (PyGILState_Check()) {
    Py_DECREF(object);
    return;
  }
  {
    const std::lock_guard lock(deferred_release().mutex);
    deferred_release().objects.push_back(object);
  }
  // If the queue of pending calls is full, a later call releases the object.
  Py_AddPendingCall(release_deferred, nullptr);
}

/// Text that may quote bytes of a file: those that are not UTF-8 are escaped.
nb::object readable(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(
      text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

/// The name of a field, which may come from a file too.
nb::object utf8(const std::string& name) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "strict");
  if (decoded != nullptr) return nb::steal(decoded);
  PyErr_Clear();
  throw DataError(text("expected names in UTF-8, found '", name, "'"));
}

void raise(PyObject* type, const std::string& message) {
  PyErr_SetObject(type, readable(message).ptr());
}

/// Raises an exception of Millstream's own.
void raise_own(const char* type, const std::string& message) {
  raise(nb::module_::import_("millstream._core.errors").attr(type).ptr(), message);
}

/// Raises what a function threw, as it threw it.
void raise_thrown(const FunctionError& error) {
  nb::object thrown;
  if (error.object() != nullptr) {
    thrown = nb::borrow(
        const_cast<PyObject*>(static_cast<const PyObject*>(error.object().get())));
  } else {
    const nb::bytes bytes(error.bytes().data(), error.bytes().size());
    thrown = nb::module_::import_("millstream._core.errors")
                 .attr("thrown")(bytes, readable(error.what()));
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(thrown.ptr())), thrown.ptr());
}

}  // namespace

std::shared_ptr<const void> shared_object(nb::handle object) {
  Py_INCREF(object.ptr());
  return {object.ptr(), [](const void* pointer) {
            release(const_cast<PyObject*>(static_cast<const PyObject*>(pointer)));
          }};
}

nb::list described(const Schema& schema) {
  nb::list fields;
  for (const Field& field : schema) {
    nb::list shape;
    for (const std::int64_t extent : field.shape.extents()) shape.append(extent);
    fields.append(nb::make_tuple(utf8(field.name), std::string(name(field.dtype)),
                                 nb::tuple(shape)));
  }
  return fields;
}

void bind_core(nb::module_&) {
  // ArgumentError is a ValueError; DataError is millstream's own; IoError an OSError.
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const ArgumentError& error) {
      raise(PyExc_ValueError, error.what());
    } catch (const DataError& error) {
      raise_own("DataError", error.what());
    } catch (const IoError& error) {
      const nb::object path =
          nb::steal(PyUnicode_DecodeFSDefault(error.path().c_str()));
      const nb::object exception =
          nb::steal(PyObject_CallFunction(PyExc_OSError, "iOO", error.code(),
                                          readable(error.what()).ptr(), path.ptr()));
      PyErr_SetObject(PyExc_OSError, exception.ptr());
    } catch (const FunctionError& error) {
      raise_thrown(error);
    } catch (const WorkerDied& error) {
      raise_own("WorkerError", error.what());
    } catch (const WorkerStalled& error) {
      raise_own("WorkerTimeout", error.what());
    } catch (const Closed& error) {
      raise_own("WorkerError", error.what());
    } catch (const Cancelled& error) {
      raise(PyExc_KeyboardInterrupt, error.what());
    } catch (const OutOfMemory& error) {
      raise(PyExc_MemoryError, error.what());
    } catch (const std::bad_alloc&) {
      raise(PyExc_MemoryError, OutOfMemory::kUnnamed);
    }
  });
}

}  // namespace millstream::python
