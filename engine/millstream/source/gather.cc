#include "millstream/source/gather.h"

#include <cstring>
#include <string>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

template <typename Word>
void gather_words(const Column& from, std::span<const std::int64_t> indices,
                  std::byte* to, std::int64_t stride) {
  const std::byte* base = from.data;
  const std::int64_t step = from.stride;
  for (const std::int64_t index : indices) {
    Word word;
    std::memcpy(&word, base + index * step, sizeof(Word));
    std::memcpy(to, &word, sizeof(Word));
    to += stride;
  }
}

void gather_rows(const Column& from, std::span<const std::int64_t> indices,
                 std::byte* to, std::int64_t stride) {
  const std::int64_t bytes = from.row_bytes();
  constexpr auto kAhead = static_cast<std::size_t>(kPrefetchRows);
  for (std::size_t k = 0; k < indices.size(); ++k) {
    if (k + kAhead < indices.size()) {
      prefetch(from.data + indices[k + kAhead] * from.stride, bytes);
    }
    std::memcpy(to, from.data + indices[k] * from.stride,
                static_cast<std::size_t>(bytes));
    to += stride;
  }
}

}  // namespace

void gather(const Column& from, std::span<const std::int64_t> indices, const Column& to,
            const std::string& field) {
  if (to.data == nullptr) {
    for (std::size_t k = 0; k < indices.size(); ++k) {
      to.rows[k] = from.data + indices[k] * from.stride;
    }
    return;
  }
  if (from.dtype != to.dtype) {
    const Convert convert = converter(from.dtype, to.dtype);
    const std::int64_t elements = from.shape.elements();
    for (std::size_t k = 0; k < indices.size(); ++k) {
      const std::byte* row = from.data + indices[k] * from.stride;
      const std::int64_t fitting =
          convert(row, to.data + static_cast<std::int64_t>(k) * to.stride, elements);
      if (fitting != elements) {
        throw DataError(
            {.sample = indices[k],
             .field = field,
             .text = text("holds a value of dtype ", name(from.dtype), " at element ",
                          fitting, " that ", name(to.dtype), " cannot hold")});
      }
    }
    return;
  }
  switch (from.row_bytes()) {
    case 0: return;
    case 1: return gather_words<std::uint8_t>(from, indices, to.data, to.stride);
    case 2: return gather_words<std::uint16_t>(from, indices, to.data, to.stride);
    case 4: return gather_words<std::uint32_t>(from, indices, to.data, to.stride);
    case 8: return gather_words<std::uint64_t>(from, indices, to.data, to.stride);
    default: return gather_rows(from, indices, to.data, to.stride);
  }
}

}  // namespace millstream
