#include "tensors.h"

#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>

#include "arrays.h"
#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"

namespace millstream::python {
namespace {

constexpr std::int32_t kCpu = 1;

/// The layout of DLPackExchangeAPI, version 1, as far as it is used here.
struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  const void* older;
  const void* unused[3];
  /// Fills `made` without taking a reference. Returns 0, or -1 with a Python error.
  int (*tensor)(void* object, nb::dlpack::dltensor* made);
};

std::optional<DType> dtype_of(const nb::dlpack::dtype& type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1) return std::nullopt;
  const int bits = type.bits;
  switch (static_cast<Code>(type.code)) {
    case Code::Bool: return bits == 8 ? std::optional(DType::kBool) : std::nullopt;
    case Code::Bfloat:
      return bits == 16 ? std::optional(DType::kBfloat16) : std::nullopt;
    case Code::Int:
      if (bits == 8) return DType::kInt8;
      if (bits == 16) return DType::kInt16;
      if (bits == 32) return DType::kInt32;
      if (bits == 64) return DType::kInt64;
      return std::nullopt;
    case Code::UInt:
      if (bits == 8) return DType::kUint8;
      if (bits == 16) return DType::kUint16;
      if (bits == 32) return DType::kUint32;
      if (bits == 64) return DType::kUint64;
      return std::nullopt;
    case Code::Float:
      if (bits == 16) return DType::kFloat16;
      if (bits == 32) return DType::kFloat32;
      if (bits == 64) return DType::kFloat64;
      return std::nullopt;
    default: return std::nullopt;  // complex numbers may be stored conjugated
  }
}

/// Whether the memory of a PyTorch tensor holds the negated values, as that of
/// `x.conj().imag` does.
bool is_negated(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const nb::object answer = nb::steal(PyObject_CallMethodNoArgs(tensor, name));
  if (!answer.is_valid()) PyErr_Clear();
  return answer.ptr() == Py_True;
}

}  // namespace

const void* tensor_memory(PyTypeObject* type) {
  const nb::object capsule = nb::steal(PyObject_GetAttrString(
      reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  if (!capsule.is_valid()) {
    PyErr_Clear();
    return nullptr;
  }
  const void* found = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
  if (found == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  return static_cast<const ExchangeApi*>(found)->major == 1 ? found : nullptr;
}

nb::object tensor_array(const void* memory, PyObject* tensor) {
  nb::dlpack::dltensor made;
  if (static_cast<const ExchangeApi*>(memory)->tensor(tensor, &made) != 0) {
    PyErr_Clear();
    return {};
  }
  const std::optional<DType> dtype = dtype_of(made.dtype);
  if (!dtype || made.device.device_type != kCpu || made.data == nullptr ||
      made.ndim > Shape::kMaxRank || is_negated(tensor)) {
    return {};
  }
  return view_array(*dtype, made.ndim, made.shape, made.strides,
                    static_cast<std::byte*>(made.data) + made.byte_offset);
}

}  // namespace millstream::python
