#pragma once

#include <cstddef>
#include <cstdint>

#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"
#include "module.h"

namespace millstream::python {

/// An array over the rows of a field, `stride` bytes apart. It does not copy. `owner`
/// keeps the memory alive, because Python code may keep the array. NumPy's C API
/// creates it, which is much faster than nb::ndarray.
nb::object rows_array(DType dtype, const Shape& shape, std::byte* data,
                      std::int64_t rows, std::int64_t stride, nb::handle owner);

/// An array over memory that the caller keeps alive. `strides` counts elements; null
/// means that they are side by side. At most `Shape::kMaxRank` axes.
nb::object view_array(DType dtype, int rank, const std::int64_t* shape,
                      const std::int64_t* strides, std::byte* data);

/// An array with one element, over a number that other threads may change.
nb::object cell_array(std::int64_t* data, nb::handle owner);

/// Arrays with a copy of the data.
nb::object numbers_array(const std::int64_t* data, std::size_t size);
nb::object numbers_array(const std::uint64_t* data, std::size_t size);
nb::object words_array(const std::uint32_t* data, std::size_t size);

/// The data of a contiguous uint32 array with `size` elements; null for any other
/// object.
const std::uint32_t* words_of(nb::handle array, std::size_t size) noexcept;

}  // namespace millstream::python
