#include "row_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "tensors.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

namespace millstream::python {
namespace {

/// Copies of at least this many bytes release the GIL.
constexpr std::int64_t kLargeBytes = 1 << 16;

PyArrayObject* array(nb::handle object) {
  return reinterpret_cast<PyArrayObject*>(object.ptr());
}

/// Runs `body`, without the GIL if it works on many bytes.
template <typename Body>
auto over_bytes(std::int64_t bytes, const Body& body) {
  if (bytes < kLargeBytes) return body();
  const GilRelease released;
  return body();
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

template <typename T>
bool is_within(PyArrayObject* values, std::int64_t low, std::uint64_t high) {
  if (std::cmp_greater_equal(std::numeric_limits<T>::min(), low) &&
      std::cmp_less_equal(std::numeric_limits<T>::max(), high)) {
    return true;
  }
  // A copy if the elements are not side by side in native byte order.
  const nb::object close = nb::steal(PyArray_FromArray(
      values, PyArray_DescrFromType(PyArray_TYPE(values)), NPY_ARRAY_CARRAY_RO));
  if (!close.is_valid()) throw nb::python_error();
  const auto* data = static_cast<const T*>(PyArray_DATA(array(close)));
  const npy_intp size = PyArray_SIZE(array(close));
  if (size == 0) return true;
  return over_bytes(PyArray_NBYTES(array(close)), [&] {
    T least = data[0];
    T most = data[0];
    for (npy_intp i = 1; i < size; ++i) {
      least = std::min(least, data[i]);
      most = std::max(most, data[i]);
    }
    return std::cmp_greater_equal(least, low) && std::cmp_less_equal(most, high);
  });
}

/// Whether all elements of an array of integers or bools are from `low` to `high`.
bool are_within(PyArrayObject* values, std::int64_t low, std::uint64_t high) {
  switch (PyArray_TYPE(values)) {
    case NPY_BYTE: return is_within<npy_byte>(values, low, high);
    case NPY_UBYTE: return is_within<npy_ubyte>(values, low, high);
    case NPY_SHORT: return is_within<npy_short>(values, low, high);
    case NPY_USHORT: return is_within<npy_ushort>(values, low, high);
    case NPY_INT: return is_within<npy_int>(values, low, high);
    case NPY_UINT: return is_within<npy_uint>(values, low, high);
    case NPY_LONG: return is_within<npy_long>(values, low, high);
    case NPY_ULONG: return is_within<npy_ulong>(values, low, high);
    case NPY_LONGLONG: return is_within<npy_longlong>(values, low, high);
    case NPY_ULONGLONG: return is_within<npy_ulonglong>(values, low, high);
    default: return true;  // a bool fits every integer
  }
}

/// Finds the value of a Python or NumPy integer of up to 64 bits.
bool is_integer(PyObject* value, std::int64_t& found) {
  nb::object converted;
  if (!PyLong_CheckExact(value)) {
    if (!PyArray_IsScalar(value, Integer)) return false;
    // NumPy's time differences are integers for Python, but not for the conversion.
    if (PyArray_IsScalar(value, Timedelta)) return false;
    converted = nb::steal(PyNumber_Index(value));
    if (!converted.is_valid()) throw nb::python_error();
    value = converted.ptr();
  }
  int overflow = 0;
  found = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow == 0;
}

}  // namespace

FieldRows::FieldRows(nb::object rows) : rows_(std::move(rows)) {
  if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();
  if (!PyArray_CheckExact(rows_.ptr()) || PyArray_NDIM(array(rows_)) < 1 ||
      !PyArray_ISWRITEABLE(array(rows_)) || !PyArray_ISNOTSWAPPED(array(rows_))) {
    throw nb::value_error(
        "rows must be a writable NumPy array in native byte order with at least one "
        "axis");
  }
  type_ = PyArray_TYPE(array(rows_));
  rank_ = PyArray_NDIM(array(rows_)) - 1;
  bytes_ = PyArray_ITEMSIZE(array(rows_));
  whole_ = PyTypeNum_ISINTEGER(type_);
  if (whole_) {
    const bool negative = PyTypeNum_ISSIGNED(type_);
    high_ = UINT64_MAX >> (64 - 8 * bytes_ + (negative ? 1 : 0));
    low_ = negative ? -static_cast<std::int64_t>(high_) - 1 : 0;
  }
  for (int axis = rank_; axis > 0; --axis) {
    const npy_intp length = PyArray_DIM(array(rows_), axis);
    const bool close = PyArray_STRIDE(array(rows_), axis) == bytes_;
    if (length > 1 && PyArray_SIZE(array(rows_)) > 0 && !close) {
      throw nb::value_error("each row of `rows` must be contiguous");
    }
    bytes_ *= length;
  }
}

std::int64_t FieldRows::count() const { return PyArray_DIM(array(rows_), 0); }

bool FieldRows::put(std::int64_t k, PyObject* value) {
  std::byte* to = static_cast<std::byte*>(PyArray_DATA(array(rows_))) +
                  k * PyArray_STRIDE(array(rows_), 0);
  if (PyArray_Check(value)) {
    // A masked array may hide elements, which is an error.
    if (!PyArray_CheckExact(value) && PyObject_HasAttrString(value, "_mask") != 0) {
      return false;
    }
    return put_array(to, value);
  }
  if (rank_ == 0 && put_number(to, value)) return true;
  const nb::object made = as_array(value);
  return made.is_valid() && put_array(to, made);
}

bool FieldRows::put_number(std::byte* to, PyObject* value) const {
  if (PyFloat_CheckExact(value) || PyArray_IsScalar(value, Double)) {
    return put_real(to, PyFloat_AS_DOUBLE(value));
  }
  if (PyArray_IsScalar(value, Float)) {
    return put_real(to, static_cast<double>(PyArrayScalar_VAL(value, Float)));
  }
  if (PyBool_Check(value) || PyArray_IsScalar(value, Bool)) {
    const bool truth = value == Py_True || value == PyArrayScalar_True;
    if (type_ == NPY_BOOL) store(to, truth);
    return type_ == NPY_BOOL || put_whole(to, truth ? 1 : 0);
  }
  std::int64_t found;
  return is_integer(value, found) && put_whole(to, found);
}

bool FieldRows::put_whole(std::byte* to, std::int64_t value) const {
  static_assert(std::endian::native == std::endian::little);
  if (whole_) {
    if (std::cmp_less(value, low_) || std::cmp_greater(value, high_)) return false;
    std::memcpy(to, &value, static_cast<std::size_t>(bytes_));
    return true;
  }
  if (type_ == NPY_FLOAT32) {
    store(to, static_cast<float>(value));
  } else if (type_ == NPY_FLOAT64) {
    store(to, static_cast<double>(value));
  } else {
    return false;
  }
  return true;
}

bool FieldRows::put_real(std::byte* to, double value) const {
  if (type_ == NPY_FLOAT64) {
    store(to, value);
    return true;
  }
  if (type_ != NPY_FLOAT32) return false;
  const auto narrow = static_cast<float>(value);
  if (std::isinf(narrow) != std::isinf(value)) return false;  // NumPy warns
  store(to, narrow);
  return true;
}

bool FieldRows::put_array(std::byte* to, nb::handle from) const {
  if (!has_shape_of_row(from)) return false;
  const bool same = PyArray_DESCR(array(from)) == PyArray_DESCR(array(rows_));
  if (same && PyArray_IS_C_CONTIGUOUS(array(from))) {
    const void* data = PyArray_DATA(array(from));
    over_bytes(bytes_,
               [&] { std::memcpy(to, data, static_cast<std::size_t>(bytes_)); });
    return true;
  }
  if (!same && !can_hold(from)) return false;
  PyArray_Descr* const dtype = PyArray_DESCR(array(rows_));
  Py_INCREF(dtype);
  const nb::object row = nb::steal(PyArray_NewFromDescr(
      &PyArray_Type, dtype, rank_, PyArray_DIMS(array(rows_)) + 1,
      PyArray_STRIDES(array(rows_)) + 1, to, NPY_ARRAY_WRITEABLE, nullptr));
  if (!row.is_valid() || PyArray_CopyInto(array(row), array(from)) < 0) {
    throw nb::python_error();
  }
  return true;
}

bool FieldRows::has_shape_of_row(nb::handle value) const {
  return PyArray_NDIM(array(value)) == rank_ &&
         PyArray_CompareLists(PyArray_DIMS(array(value)),
                              PyArray_DIMS(array(rows_)) + 1, rank_) != 0;
}

bool FieldRows::can_hold(nb::handle value) const {
  const int type = PyArray_TYPE(array(value));
  if (whole_ && (PyTypeNum_ISINTEGER(type) || PyTypeNum_ISBOOL(type))) {
    return are_within(array(value), low_, high_);
  }
  return PyArray_CanCastTypeTo(PyArray_DESCR(array(value)), PyArray_DESCR(array(rows_)),
                               NPY_SAME_KIND_CASTING) != 0;
}

nb::object FieldRows::as_array(PyObject* value) {
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  if (tensor_type_.ptr() != type) {
    tensor_memory_ = tensor_memory(Py_TYPE(value));
    tensor_type_ = nb::borrow(type);
  }
  if (tensor_memory_ != nullptr) return tensor_array(tensor_memory_, value);
  nb::object made =
      nb::steal(PyArray_FromAny(value, nullptr, 0, 0, NPY_ARRAY_ENSUREARRAY, nullptr));
  if (made.is_valid()) return made;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) throw nb::python_error();
  PyErr_Clear();  // np.asarray raises it again
  return {};
}

}  // namespace millstream::python
