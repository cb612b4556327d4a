#include "millstream/source/arrays.h"

#include <utility>

#include "millstream/core/error.h"
#include "millstream/source/gather.h"

namespace millstream {
namespace {

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
