#include "millstream/source/arrays.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/source/gather.h"

namespace millstream {
namespace {

/// Arrays that lie side by side are read together for this many rows. These rows and
/// the next ones fit into the L1 cache.
constexpr std::size_t kTile = 64;
/// Reading arrays together helps only if a row is short.
constexpr std::int64_t kLongestRow = 1024;

/// Groups the arrays whose rows lie side by side in memory, in the order of their
/// addresses. Other arrays are groups of one.
std::vector<std::vector<std::size_t>> side_by_side(const std::vector<Array>& arrays) {
  std::vector<std::size_t> order(arrays.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::less{},
                           [&](std::size_t i) { return arrays[i].data; });
  std::vector<std::vector<std::size_t>> groups;
  for (const std::size_t i : order) {
    const Array& array = arrays[i];
    if (!groups.empty()) {
      const Array& first = arrays[groups.back().front()];
      const std::int64_t stride = std::abs(first.stride);
      const bool near = array.data != nullptr && stride <= kLongestRow &&
                        array.stride == first.stride && !array.mapped &&
                        !first.mapped && array.data - first.data < stride;
      if (near) {
        groups.back().push_back(i);
        continue;
      }
    }
    groups.push_back({i});
  }
  return groups;
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
  for (std::vector<std::size_t>& group : side_by_side(arrays_)) {
    if (group.size() == 1) {
      alone_.push_back(group.front());
    } else {
      groups_.push_back(std::move(group));
    }
  }
}

void ArraysSource::read(std::size_t i, std::span<const std::int64_t> indices,
                        const Column& to, Memory& memory) const {
  const Array& array = arrays_[i];
  // Nobody writes through this column.
  const Column from = {array.field.dtype, array.field.shape,
                       const_cast<std::byte*>(array.data), array.stride, nullptr};
  if (array.mapped) {
    gather_mapped(array, from, indices, to, memory);
  } else {
    gather(from, indices, to, array.field.name);
  }
}

void ArraysSource::read(const Request& request, Rows& rows) const {
  const std::span<const std::int64_t> indices = request.indices;
  for (const std::size_t i : alone_) read(i, indices, rows.columns[i], rows.memory);
  for (const std::vector<std::size_t>& group : groups_) {
    const Array& first = arrays_[group.front()];
    const std::int64_t bytes = std::abs(first.stride);
    for (std::size_t at = 0; at < indices.size(); at += kTile) {
      const auto tile = [&](std::size_t begin) {
        begin = std::min(begin, indices.size());
        return indices.subspan(begin, std::min(kTile, indices.size() - begin));
      };
      for (const std::int64_t index : tile(at + kTile)) {
        prefetch(first.data + index * first.stride, bytes);
      }
      for (const std::size_t i : group) {
        Column to = rows.columns[i];
        if (to.data != nullptr) to.data += static_cast<std::int64_t>(at) * to.stride;
        if (to.rows != nullptr) to.rows += at;
        read(i, tile(at), to, rows.memory);
      }
    }
  }
}

}  // namespace millstream
