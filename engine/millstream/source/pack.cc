#include "millstream/source/pack.h"

#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/source/gather.h"

namespace millstream {
namespace {

/// Rows of at most this many bytes are packed.
constexpr std::int64_t kSmall = 64;
/// Packing writes this many rows of all arrays before the next ones, so that they stay
/// in the CPU's cache.
constexpr std::int64_t kTile = 512;

bool is_small(const Array& array) {
  const std::int64_t bytes = byte_size(array.field);
  // All rows of an array with a stride of 0 are the same bytes.
  return 0 < bytes && bytes <= kSmall && array.stride != 0;
}

/// Copies rows [begin, end) of an array.
void copy(const Array& array, std::int64_t begin, std::int64_t end, std::byte* to,
          std::int64_t stride) {
  std::int64_t indices[kTile];
  const std::span rows(indices, static_cast<std::size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  const Column from = {array.field.dtype, array.field.shape,
                       const_cast<std::byte*>(array.data), array.stride, nullptr};
  const Column out = {array.field.dtype, array.field.shape, to, stride, nullptr};
  const auto read = [&] { gather(from, rows, out, array.field.name); };
  if (!array.mapped) return read();
  adding(
      [&] {
        return ErrorFields{.file = array.mapped->path().string(),
                           .field = array.field.name};
      },
      [&] { array.mapped->read(read); });
}

std::shared_ptr<const Block> huge_block(std::int64_t bytes) {
  auto block = std::make_shared<const Block>(bytes, "a packed copy of the arrays");
  // Rows in random order miss the TLB less often if pages are huge.
  constexpr std::uintptr_t kPage = 4096;
  const auto at = reinterpret_cast<std::uintptr_t>(block->data());
  const std::uintptr_t begin = (at + kPage - 1) / kPage * kPage;
  const std::uintptr_t end = (at + static_cast<std::uintptr_t>(bytes)) / kPage * kPage;
  if (begin < end) {
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
  return block;
}

}  // namespace

Packable packable(const ArraysSource& source) {
  Packable all;
  for (const Array& array : source.arrays()) {
    if (!is_small(array) || array.packed) continue;
    ++all.arrays;
    all.bytes += byte_size(array.field) * array.size;
  }
  return all.arrays < 2 ? Packable{} : all;
}

ArraysSource packed(const ArraysSource& source) {
  std::vector<Array> arrays = source.arrays();
  const std::int64_t bytes = packable(source).bytes;
  std::vector<Array*> small;
  for (Array& array : arrays) {
    if (bytes > 0 && is_small(array) && !array.packed) small.push_back(&array);
  }
  // Descending sizes keep most values aligned.
  std::ranges::stable_sort(small, std::ranges::greater{},
                           [](const Array* array) { return byte_size(array->field); });
  const std::int64_t rows = source.size();
  const std::int64_t stride = bytes / rows;
  const std::shared_ptr<const Block> block = huge_block(bytes);
  for (std::int64_t begin = 0; begin < rows; begin += kTile) {
    std::byte* to = block->data() + begin * stride;
    for (const Array* array : small) {
      copy(*array, begin, std::min(begin + kTile, rows), to, stride);
      to += byte_size(array->field);
    }
  }
  std::byte* to = block->data();
  for (Array* array : small) {
    *array = {array->field, rows, to, stride, block};
    array->packed = true;
    to += byte_size(array->field);
  }
  return ArraysSource(std::move(arrays));
}

Array unpacked(const Array& array) {
  const std::int64_t row = byte_size(array.field);
  const auto block = std::make_shared<const Block>(row * array.size, "an array");
  for (std::int64_t begin = 0; begin < array.size; begin += kTile) {
    copy(array, begin, std::min(begin + kTile, array.size), block->data() + begin * row,
         row);
  }
  return {array.field, array.size, block->data(), row, block};
}

}  // namespace millstream
