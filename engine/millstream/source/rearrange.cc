#include "millstream/source/rearrange.h"

#include <cstring>

namespace millstream {
namespace {

template <typename Word>
Word reversed(Word word) {
  if constexpr (sizeof(Word) == 2) return __builtin_bswap16(word);
  if constexpr (sizeof(Word) == 4) return __builtin_bswap32(word);
  if constexpr (sizeof(Word) == 8) return __builtin_bswap64(word);
}

template <typename Word>
void swap_words(std::byte* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::byte* at = values + i * static_cast<std::int64_t>(sizeof(Word));
    Word word;
    std::memcpy(&word, at, sizeof(Word));
    word = reversed(word);
    std::memcpy(at, &word, sizeof(Word));
  }
}

[[gnu::always_inline]] inline void interleave_three(const std::byte* __restrict planes,
                                                    std::byte* __restrict pixels,
                                                    std::int64_t area) {
  for (std::int64_t i = 0; i < area; ++i) {
    pixels[3 * i] = planes[i];
    pixels[3 * i + 1] = planes[area + i];
    pixels[3 * i + 2] = planes[2 * area + i];
  }
}

void interleave_three_plain(const std::byte* planes, std::byte* pixels,
                            std::int64_t area) {
  interleave_three(planes, pixels, area);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void interleave_three_avx2(const std::byte* planes,
                                                   std::byte* pixels,
                                                   std::int64_t area) {
  interleave_three(planes, pixels, area);
}
const bool kAvx2 = __builtin_cpu_supports("avx2");
#endif

}  // namespace

void swap_bytes(std::byte* values, DType dtype, std::int64_t count) {
  if (is_complex_dtype(dtype)) count *= 2;
  switch (byte_size(dtype) / (is_complex_dtype(dtype) ? 2 : 1)) {
    case 2: return swap_words<std::uint16_t>(values, count);
    case 4: return swap_words<std::uint32_t>(values, count);
    case 8: return swap_words<std::uint64_t>(values, count);
    default: return;
  }
}

void clean_booleans(std::byte* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = values[i] != std::byte{0} ? std::byte{1} : std::byte{0};
  }
}

void interleave(const std::byte* planes, std::byte* pixels, const Shape& shape) {
  const std::int64_t area = shape[0] * shape[1];
  const std::int64_t channels = shape[2];
  if (channels == 3) {
#if defined(__x86_64__)
    if (kAvx2) return interleave_three_avx2(planes, pixels, area);
#endif
    return interleave_three_plain(planes, pixels, area);
  }
  for (std::int64_t i = 0; i < area; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      pixels[i * channels + c] = planes[c * area + i];
    }
  }
}

}  // namespace millstream
