#include "millstream/core/cpu.h"
#include "millstream/transform/arithmetic.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millstream {

#if defined(__x86_64__)
namespace {

/// One row. Without FMA, because a fused multiply-add rounds once instead of twice.
template <bool kShifts, bool kStandardizes>
[[gnu::target("avx2,no-fma")]] void stream_row(const std::uint8_t* from, float* to,
                                               std::int64_t count,
                                               const Numbers<float>& numbers) {
  const float* mean = numbers.mean;
  const float* std = numbers.std;
  const __m256 scale = _mm256_set1_ps(numbers.scale);
  const __m256 offset = _mm256_set1_ps(numbers.offset);
  std::int64_t at = 0;  // in `mean` and `std`
  std::int64_t i = 0;
  const auto advance = [&](std::int64_t values) {
    i += values;
    if constexpr (kStandardizes) at += values;
    if (kStandardizes && at >= numbers.period) at -= numbers.period;
  };
  const auto one = [&] {
    float value = scaled<float>(from[i], numbers.scale, numbers.offset, kShifts);
    if constexpr (kStandardizes) value = standardized(value, mean[at], std[at]);
    to[i] = value;
    advance(1);
  };
  while (i < count && reinterpret_cast<std::uintptr_t>(to + i) % 64 != 0) one();
  for (; i + 16 <= count; advance(16)) {
    for (int half = 0; half < 16; half += 8) {
      const __m128i bytes =
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i + half));
      __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
      values = _mm256_mul_ps(values, scale);
      if constexpr (kShifts) values = _mm256_add_ps(values, offset);
      if constexpr (kStandardizes) {
        values = _mm256_sub_ps(values, _mm256_loadu_ps(mean + at + half));
        values = _mm256_div_ps(values, _mm256_loadu_ps(std + at + half));
      }
      _mm256_stream_ps(to + i + half, values);
    }
  }
  while (i < count) one();
}

using StreamRow = void (*)(const std::uint8_t*, float*, std::int64_t,
                           const Numbers<float>&);

StreamRow kernel(const Numbers<float>& numbers) {
  if (numbers.period == 0) {
    return numbers.shifts ? stream_row<true, false> : stream_row<false, false>;
  }
  return numbers.shifts ? stream_row<true, true> : stream_row<false, true>;
}

}  // namespace

bool stream_pixels(const Column& from, const Column& to, std::int64_t rows,
                   const Numbers<float>& numbers) {
  if (!has_avx2()) return false;
  const StreamRow stream = kernel(numbers);
  const std::int64_t count = from.shape.elements();
  for (std::int64_t k = 0; k < rows; ++k) {
    if (from.rows != nullptr && k + kPrefetchRows < rows) {
      prefetch(from.row(k + kPrefetchRows), from.row_bytes());
    }
    stream(reinterpret_cast<const std::uint8_t*>(from.row(k)),
           reinterpret_cast<float*>(to.row(k)), count, numbers);
  }
  _mm_sfence();  // other threads may read the rows after this call
  return true;
}
#else
bool stream_pixels(const Column&, const Column&, std::int64_t, const Numbers<float>&) {
  return false;
}
#endif

}  // namespace millstream
