#include "arrays.h"

#include <algorithm>
#include <array>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

namespace millstream::python {
namespace {

void need_numpy() {
  if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();
}

/// NumPy's descriptor of a dtype, which is created once and never freed.
PyArray_Descr* description(DType dtype) {
  static std::array<PyArray_Descr*, kDTypes> known{};
  PyArray_Descr*& found = known[static_cast<std::size_t>(dtype)];
  if (found != nullptr) return found;
  const std::string_view words = name(dtype);
  nb::object type = nb::str(words.data(), words.size());
  if (dtype == DType::kBfloat16) {
    type = nb::module_::import_("ml_dtypes").attr("bfloat16");
  }
  if (PyArray_DescrConverter(type.ptr(), &found) == NPY_FAIL) {
    throw nb::python_error();
  }
  return found;
}

nb::object array(PyArray_Descr* description, const void* data, int dimensions,
                 const npy_intp* shape, const npy_intp* strides,
                 nb::handle owner = {}) {
  Py_INCREF(description);
  nb::object made = nb::steal(PyArray_NewFromDescr(
      &PyArray_Type, description, dimensions, shape, strides, const_cast<void*>(data),
      NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE, nullptr));
  if (!made.is_valid()) throw nb::python_error();
  if (owner.is_valid()) {
    auto* base = reinterpret_cast<PyArrayObject*>(made.ptr());
    if (PyArray_SetBaseObject(base, owner.inc_ref().ptr()) < 0) {
      throw nb::python_error();
    }
  }
  return made;
}

template <typename T>
nb::object copied(DType dtype, const T* data, std::size_t size) {
  need_numpy();
  const auto length = static_cast<npy_intp>(size);
  nb::object made = array(description(dtype), nullptr, 1, &length, nullptr);
  auto* to = PyArray_DATA(reinterpret_cast<PyArrayObject*>(made.ptr()));
  std::copy_n(data, size, static_cast<T*>(to));
  return made;
}

}  // namespace

nb::object rows_array(DType dtype, const Shape& shape, std::byte* data,
                      std::int64_t rows, std::int64_t stride, nb::handle owner) {
  need_numpy();
  PyArray_Descr* const element = description(dtype);
  const int rank = shape.rank() + 1;
  npy_intp extents[Shape::kMaxRank + 1] = {rows};
  npy_intp strides[Shape::kMaxRank + 1] = {stride};
  npy_intp bytes = PyDataType_ELSIZE(element);
  for (int axis = rank - 1; axis > 0; --axis) {
    extents[axis] = shape[axis - 1];
    strides[axis] = bytes;
    bytes *= extents[axis];
  }
  return array(element, data, rank, extents, strides, owner);
}

nb::object view_array(DType dtype, int rank, const std::int64_t* shape,
                      const std::int64_t* strides, std::byte* data) {
  need_numpy();
  PyArray_Descr* const element = description(dtype);
  npy_intp steps[Shape::kMaxRank];
  for (int axis = 0; strides != nullptr && axis < rank; ++axis) {
    steps[axis] = strides[axis] * PyDataType_ELSIZE(element);
  }
  return array(element, data, rank, shape, strides == nullptr ? nullptr : steps);
}

nb::object cell_array(std::int64_t* data, nb::handle owner) {
  need_numpy();
  const npy_intp length = 1;
  return array(description(DType::kInt64), data, 1, &length, nullptr, owner);
}

nb::object numbers_array(const std::int64_t* data, std::size_t size) {
  return copied(DType::kInt64, data, size);
}

nb::object numbers_array(const std::uint64_t* data, std::size_t size) {
  return copied(DType::kUint64, data, size);
}

nb::object words_array(const std::uint32_t* data, std::size_t size) {
  return copied(DType::kUint32, data, size);
}

const std::uint32_t* words_of(nb::handle array, std::size_t size) noexcept {
  if (PyArray_ImportNumPyAPI() < 0) {
    PyErr_Clear();
    return nullptr;
  }
  if (!PyArray_Check(array.ptr())) return nullptr;
  auto* words = reinterpret_cast<PyArrayObject*>(array.ptr());
  if (PyArray_TYPE(words) != NPY_UINT32 || !PyArray_ISCARRAY_RO(words) ||
      PyArray_NDIM(words) != 1 ||
      PyArray_DIM(words, 0) != static_cast<npy_intp>(size)) {
    return nullptr;
  }
  return static_cast<const std::uint32_t*>(PyArray_DATA(words));
}

}  // namespace millstream::python
