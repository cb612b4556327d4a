#pragma once

#include <cstddef>
#include <cstdint>

#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"
#include "module.h"

namespace millstream::python {

/// NumPy arrays over memory that is not theirs, made by NumPy's own functions: by way
/// of nanobind each is a dozen calls in Python. Code that Python runs may keep an array
/// for as long as it likes, so the owner keeps the memory. This one has the rows of a
/// field, `stride` bytes apart.
nb::object rows_array(DType dtype, const Shape& shape, std::byte* data,
                      std::int64_t rows, std::int64_t stride, nb::handle owner);

/// One number that others change meanwhile, as an array of one.
nb::object cell_array(std::int64_t* data, nb::handle owner);

/// Arrays of their own.
nb::object numbers_array(const std::int64_t* data, std::size_t size);
nb::object numbers_array(const std::uint64_t* data, std::size_t size);
nb::object words_array(const std::uint32_t* data, std::size_t size);

/// The data of an array of so many words without gaps; null if it is not one.
const std::uint32_t* words_of(nb::handle array, std::size_t size) noexcept;

}  // namespace millstream::python
