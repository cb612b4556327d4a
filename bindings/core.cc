#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millstream/core/error.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {
namespace {

/// References that were dropped on threads without the GIL.
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

/// Decodes a message. It may quote bytes of a file, so bytes that are not UTF-8 are
/// escaped.
nb::str readable(const std::string& text) {
  return nb::steal<nb::str>(PyUnicode_DecodeUTF8(
      text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

nb::object path_object(const std::string& path) {
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(
      path.data(), static_cast<Py_ssize_t>(path.size())));
}

/// Decodes the name of a field, which may come from a file.
nb::object utf8(const std::string& name) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "strict");
  if (decoded != nullptr) return nb::steal(decoded);
  PyErr_Clear();
  throw DataError({.expected = "names in UTF-8", .found = "'" + name + "'"});
}

void raise(nb::handle exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())),
                  exception.ptr());
}

void raise(PyObject* type, const std::string& message) {
  PyErr_SetObject(type, readable(message).ptr());
}

/// The fields of an error as Python attributes. Missing fields are None.
nb::dict attributes(const Error& error) {
  const ErrorFields& fields = error.fields();
  const auto words = [](const std::string& text) -> nb::object {
    return text.empty() ? nb::none() : nb::object(readable(text));
  };
  const auto number = [](const std::optional<std::int64_t>& value) -> nb::object {
    return value ? nb::object(nb::int_(*value)) : nb::none();
  };
  nb::dict found;
  found["kind"] = std::string(name(error.kind()));
  found["path"] = fields.file.path.empty() ? nb::none() : path_object(fields.file.path);
  found["offset"] = number(fields.offset);
  found["line"] = number(fields.line);
  found["sample"] = number(fields.sample);
  found["field"] = words(fields.field);
  found["expected"] = words(fields.expected);
  found["found"] = words(fields.found);
  found["text"] = words(fields.text);
  found["pid"] = number(fields.process);
  return found;
}

/// Raises an exception class of `millstream`.
void raise_own(const char* type, const Error& error) {
  const nb::object own = nb::module_::import_("millstream._core.errors").attr(type);
  raise(own(readable(error.what()), **attributes(error)));
}

/// Raises a built-in exception, which takes no keywords, with the same attributes.
void raise_with_attributes(const nb::object& exception, const Error& error) {
  for (const auto& [attribute, value] : attributes(error)) {
    nb::setattr(exception, attribute, value);
  }
  raise(exception);
}

/// The message of an error that Python code found.
nb::str error_text(const std::optional<std::filesystem::path>& path,
                   std::optional<std::int64_t> offset, std::optional<std::int64_t> line,
                   std::optional<std::int64_t> sample, const std::string& field,
                   const std::string& expected, const std::string& found,
                   const std::string& words) {
  return readable(
      composed(ErrorKind::kData, {.file = path ? path->string() : std::string(),
                                  .offset = offset,
                                  .line = line,
                                  .sample = sample,
                                  .field = field,
                                  .expected = expected,
                                  .found = found,
                                  .text = words}));
}

/// Raises the exception of a user's function unchanged.
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
  raise(thrown);
}

}  // namespace

std::shared_ptr<const void> shared_object(nb::handle object) {
  Py_INCREF(object.ptr());
  return {object.ptr(), [](const void* pointer) {
            release(const_cast<PyObject*>(static_cast<const PyObject*>(pointer)));
          }};
}

Schema schema(const std::vector<FieldSpec>& specs) {
  Schema fields;
  for (const auto& [name, dtype, shape] : specs) {
    fields.push_back({name, dtype_named(dtype), Shape(shape)});
  }
  return fields;
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

void bind_core(nb::module_& module) {
  module.def("error_text", error_text, "path"_a.none() = nb::none(),
             "offset"_a.none() = nb::none(), "line"_a.none() = nb::none(),
             "sample"_a.none() = nb::none(), "field"_a = "", "expected"_a = "",
             "found"_a = "", "text"_a = "",
             "Returns the message for an error with these fields.");

  // Translates the engine's errors to Python exceptions.
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const ArgumentError& error) {
      raise_with_attributes(nb::handle(PyExc_ValueError)(readable(error.what())),
                            error);
    } catch (const DataError& error) {
      raise_own("DataError", error);
    } catch (const IoError& error) {
      raise_with_attributes(
          nb::handle(PyExc_OSError)(error.code(), readable(error.what()),
                                    path_object(error.fields().file.path)),
          error);
    } catch (const FunctionError& error) {
      raise_thrown(error);
    } catch (const WorkerDied& error) {
      raise_own("WorkerError", error);
    } catch (const WorkerStalled& error) {
      raise_own("WorkerTimeout", error);
    } catch (const Closed& error) {
      raise_own("WorkerError", error);
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
