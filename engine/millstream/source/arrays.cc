#include "millstream/source/arrays.h"

#include <cstring>
#include <limits>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/source/gather.h"

namespace millstream {
namespace {

/// Throws `ArgumentError` for the first sample with a value that `Narrow` cannot hold.
template <typename T, typename Narrow>
void check_fit(const Array& array) {
  constexpr T kLowest = std::numeric_limits<Narrow>::min();
  constexpr T kHighest = std::numeric_limits<Narrow>::max();
  const std::int64_t elements = array.field.shape.elements();
  const std::int64_t rows = array.stride == 0 ? 1 : array.size;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::byte* at = array.data + row * array.stride;
    const auto value = [&](std::int64_t i) {
      T element;
      std::memcpy(&element, at + i * 8, 8);
      return element;
    };
    const auto fits = [](T x) { return x >= kLowest && x <= kHighest; };
    bool inside = true;  // no early exit, so that the compiler vectorizes
    for (std::int64_t i = 0; i < elements; ++i) inside &= fits(value(i));
    if (inside) continue;
    std::int64_t bad = 0;
    while (fits(value(bad))) ++bad;
    const DType dtype = array.field.dtype;
    throw ArgumentError(
        {.sample = row,
         .field = array.field.name,
         .text = text("holds a value of dtype ", name(dtype), " that ",
                      name(narrowed(dtype)), " cannot hold, ", value(bad),
                      "; set jax_enable_x64 to use 64-bit types in JAX")});
  }
}

/// Always copies, because later users of a view would not be guarded against SIGBUS.
void gather_mapped(const Array& array, const Column& from,
                   std::span<const std::int64_t> indices, const Column& to,
                   Memory& memory) {
  const auto count = static_cast<std::int64_t>(indices.size());
  Column dense = to;
  if (to.data == nullptr) {
    const std::int64_t row = from.row_bytes();
    dense = {from.dtype, from.shape, memory.allocate(count * row), row, nullptr};
  }
  const auto known = [&] {
    return ErrorFields{.file = array.mapped->path().string(),
                       .field = array.field.name};
  };
  adding(known, [&] {
    array.mapped->read([&] { gather(from, indices, dense, array.field.name); });
  });
  if (to.data != nullptr) return;
  for (std::int64_t k = 0; k < count; ++k) to.rows[k] = dense.row(k);
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
    if (array.mapped) traits_ = {.waits = true, .may_fail = true};
  }
}

void ArraysSource::check_narrow() const {
  for (const Array& array : arrays_) {
    const auto check = [&] {
      const DType dtype = array.field.dtype;
      if (dtype == DType::kInt64) check_fit<std::int64_t, std::int32_t>(array);
      if (dtype == DType::kUint64) check_fit<std::uint64_t, std::uint32_t>(array);
    };
    if (array.mapped) {
      array.mapped->read(check);
    } else {
      check();
    }
  }
}

void ArraysSource::read(const Request& request, Rows& rows) const {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const Array& array = arrays_[i];
    // Nobody writes through this column.
    const Column from = {array.field.dtype, array.field.shape,
                         const_cast<std::byte*>(array.data), array.stride, nullptr};
    if (array.mapped) {
      gather_mapped(array, from, request.indices, rows.columns[i], rows.memory);
    } else {
      gather(from, request.indices, rows.columns[i], array.field.name);
    }
  }
}

}  // namespace millstream
