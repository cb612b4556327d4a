#include "millstream/source/rearrange.h"

#include <algorithm>

namespace millstream {
namespace {

template <std::size_t kBytes>
void reverse_each(std::byte* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i, values += kBytes) {
    std::reverse(values, values + kBytes);
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
    case 2: return reverse_each<2>(values, count);
    case 4: return reverse_each<4>(values, count);
    case 8: return reverse_each<8>(values, count);
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
#if defined(__x86_64__)
  if (kAvx2) return interleave_three_avx2(planes, pixels, area);
#endif
  interleave_three(planes, pixels, area);
}

}  // namespace millstream
