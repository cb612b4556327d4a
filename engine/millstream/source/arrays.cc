#include "millstream/source/arrays.h"

#include <cstring>
#include <limits>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/source/gather.h"

namespace millstream {
namespace {

/// The first sample of a 64-bit array with a value outside [lowest, highest], or -1.
template <typename T>
std::int64_t first_outside(const Array& array, T lowest, T highest) {
  const std::int64_t elements = array.field.shape.elements();
  const std::int64_t rows = array.stride == 0 ? 1 : array.size;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::byte* at = array.data + row * array.stride;
    bool inside = true;
    for (std::int64_t i = 0; i < elements; ++i) {
      T value;
      std::memcpy(&value, at + i * 8, 8);
      inside &= value >= lowest && value <= highest;
    }
    if (!inside) return row;
  }
  return -1;
}

template <typename T, typename Narrow>
std::int64_t first_unfit(const Array& array) {
  using Limits = std::numeric_limits<Narrow>;
  return first_outside<T>(array, Limits::min(), Limits::max());
}

}  // namespace

ArraysSource::ArraysSource(std::vector<Array> arrays) : arrays_(std::move(arrays)) {
  if (arrays_.empty()) throw ArgumentError("a source needs at least one array");
  for (const Array& array : arrays_) {
    const Array& first = arrays_.front();
    if (array.size != first.size) {
      throw ArgumentError(text("all leaves must share the leading dimension: '",
                               first.field.name, "' has ", first.size, " rows, '",
                               array.field.name, "' has ", array.size));
    }
    if (array.size < 1) {
      throw ArgumentError(
          text("'", array.field.name, "' is empty: it has ", array.size, " rows"));
    }
    schema_.push_back(array.field);
  }
}

void ArraysSource::check_narrow() const {
  for (const Array& array : arrays_) {
    std::int64_t bad = -1;
    const DType dtype = array.field.dtype;
    if (dtype == DType::kInt64) bad = first_unfit<std::int64_t, std::int32_t>(array);
    if (dtype == DType::kUint64) bad = first_unfit<std::uint64_t, std::uint32_t>(array);
    if (bad < 0) continue;
    throw ArgumentError(text("'", array.field.name, "': sample ", bad, " holds a ",
                             name(dtype), " that ", name(narrowed(dtype)),
                             " cannot hold, and JAX has no 64-bit types unless "
                             "jax_enable_x64 is set"));
  }
}

void ArraysSource::read(std::span<const std::int64_t> indices,
                        std::span<Column> columns, Memory&) const {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const Array& array = arrays_[i];
    // A column only lends its bytes here; none is written through it.
    const Column from = {array.field.dtype, array.field.shape,
                         const_cast<std::byte*>(array.data), array.stride, nullptr};
    gather(from, indices, columns[i], array.field.name);
  }
}

}  // namespace millstream
