#include "millstream/source/gather.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

/// How many rows ahead to prefetch short rows.
constexpr std::size_t kAheadWords = 32;

/// Whether the rows are so far apart that few of them are in the CPU's caches. Looks at
/// the first rows only.
bool far_apart(std::span<const std::int64_t> indices, std::int64_t step) {
  constexpr std::size_t kLooked = 16;
  constexpr std::int64_t kCache = std::int64_t{2} << 20;
  if (indices.size() <= kAheadWords) return false;
  const auto [least, most] = std::ranges::minmax(indices.first(kLooked));
  return (most - least) * std::abs(step) > kCache;
}

template <typename Word>
void gather_words(const Column& from, std::span<const std::int64_t> indices,
                  std::byte* to, std::int64_t stride) {
  const std::byte* base = from.data;
  const std::int64_t step = from.stride;
  const auto put = [&](std::int64_t index) {
    Word word;
    std::memcpy(&word, base + index * step, sizeof(Word));
    std::memcpy(to, &word, sizeof(Word));
    to += stride;
  };
  std::size_t k = 0;
  if (far_apart(indices, step)) {
    for (; k + kAheadWords < indices.size(); ++k) {
      constexpr int kIntoL2 = 1;  // each line is needed once
      __builtin_prefetch(base + indices[k + kAheadWords] * step, 0, kIntoL2);
      put(indices[k]);
    }
  }
  for (; k < indices.size(); ++k) put(indices[k]);
}

void gather_long(const Column& from, std::span<const std::int64_t> indices,
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

void gather_rows(const Column& from, std::span<const std::int64_t> indices,
                 std::byte* to, std::int64_t stride) {
  switch (from.row_bytes()) {
    case 0: return;
    case 1: return gather_words<std::uint8_t>(from, indices, to, stride);
    case 2: return gather_words<std::uint16_t>(from, indices, to, stride);
    case 4: return gather_words<std::uint32_t>(from, indices, to, stride);
    case 8: return gather_words<std::uint64_t>(from, indices, to, stride);
    default: return gather_long(from, indices, to, stride);
  }
}

/// Copies short rows to a buffer first, because one call that converts many values is
/// faster than one call per row.
void gather_converted(const Column& from, std::span<const std::int64_t> indices,
                      const Column& to, const std::string& field) {
  alignas(64) std::byte buffer[4096];
  const Convert convert = converter(from.dtype, to.dtype);
  const std::int64_t elements = from.shape.elements();
  const std::int64_t bytes = from.row_bytes();
  const bool blocks =
      0 < bytes && 2 * bytes <= std::ssize(buffer) && to.stride == to.row_bytes();
  const std::int64_t most = blocks ? std::ssize(buffer) / bytes : 1;
  std::byte* out = to.data;
  while (!indices.empty()) {
    const std::size_t rows = std::min(indices.size(), static_cast<std::size_t>(most));
    const std::byte* in = from.data + indices[0] * from.stride;
    if (blocks) {
      gather_rows(from, indices.first(rows), buffer, bytes);
      in = buffer;
    }
    const std::int64_t count = static_cast<std::int64_t>(rows) * elements;
    const std::int64_t fitting = convert(in, out, count);
    if (fitting < count) {
      const std::int64_t row = fitting / elements;
      throw unfit({.sample = indices[static_cast<std::size_t>(row)], .field = field},
                  from, in + row * bytes, fitting % elements, to.dtype);
    }
    out += static_cast<std::int64_t>(rows) * to.stride;
    indices = indices.subspan(rows);
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
    gather_converted(from, indices, to, field);
  } else {
    gather_rows(from, indices, to.data, to.stride);
  }
}

}  // namespace millstream
