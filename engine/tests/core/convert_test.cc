#include "millstream/core/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {
namespace {

// Represents every int64, uint64 and double exactly.
using Exact = std::complex<long double>;

template <typename T>
T clamped(long double value) {
  if (std::isnan(value)) return T{};
  const long double whole = std::trunc(value);
  if (whole <= static_cast<long double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  if (whole >= static_cast<long double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(whole);
}

/// The T nearest to `value`; integers saturate.
template <typename T>
T nearest(Exact value) {
  if constexpr (is_complex<T>) {
    using Part = typename T::value_type;
    return T(static_cast<Part>(value.real()), static_cast<Part>(value.imag()));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value.real() != 0;
  } else if constexpr (is_small_float<T>) {
    return T(static_cast<float>(value.real()));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value.real());
  } else {
    return clamped<T>(value.real());
  }
}

template <typename T>
Exact exact(T value) {
  if constexpr (is_complex<T>) {
    return {static_cast<long double>(value.real()),
            static_cast<long double>(value.imag())};
  } else if constexpr (is_small_float<T>) {
    return {static_cast<long double>(static_cast<float>(value)), 0};
  } else {
    return {static_cast<long double>(value), 0};
  }
}

template <typename To, typename From>
To reference(From value) {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To> &&
                !std::is_same_v<To, bool>) {
    std::uint64_t word = 0;
    const auto wide = static_cast<std::int64_t>(value);
    std::memcpy(&word, &wide, 8);
    To low;  // integers wrap: the low bytes on a little-endian machine
    std::memcpy(&low, &word, sizeof(To));
    return low;
  } else if constexpr (is_small_float<To> && !is_small_float<From>) {
    return To(nearest<float>(exact(value)));
  } else if constexpr (is_complex<To> && !is_complex<From>) {
    return nearest<To>({exact(value).real(), 0});
  } else {
    return nearest<To>(exact(value));
  }
}

template <typename T>
std::string described(T value) {
  const Exact number = exact(value);
  return text(static_cast<double>(number.real()), "+",
              static_cast<double>(number.imag()), "i");
}

template <typename T>
bool same(T a, T b) {
  if constexpr (is_complex<T>) {
    return same(a.real(), b.real()) && same(a.imag(), b.imag());
  } else if constexpr (std::is_integral_v<T>) {
    return a == b;
  } else {
    const auto x = static_cast<float>(a);
    const auto y = static_cast<float>(b);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return std::memcmp(&a, &b, sizeof(T)) == 0;
  }
}

/// Edge values of the conversions, in this type.
template <typename T>
std::vector<T> edges() {
  using Double = std::numeric_limits<double>;
  std::vector<long double> values = {0.0L,
                                     -0.0L,
                                     0.25L,
                                     0.5L,
                                     0.75L,
                                     1.0L,
                                     1.5L,
                                     2.5L,
                                     1e10L,
                                     1e30L,
                                     1e38L,
                                     3.5e38L,
                                     1e300L,
                                     Double::denorm_min(),
                                     0x1p-149L,
                                     0x1p-25L,
                                     0x1.8p-25L,
                                     65504.0L,
                                     65520.0L,
                                     Double::infinity(),
                                     Double::quiet_NaN()};
  for (const int bits : {7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64}) {
    const long double power = std::ldexp(1.0L, bits);
    for (const long double by : {-1.5L, -1.0L, -0.5L, 0.0L, 0.5L, 1.0L, 3.0L}) {
      values.push_back(power + by);
    }
  }
  std::vector<T> result;
  for (const long double value : values) {
    result.push_back(nearest<T>({value, -value / 2}));
    result.push_back(nearest<T>({-value, value}));
  }
  return result;
}

template <typename Function>
void for_each_dtype(Function function) {
  for (int i = 0; i < kDTypes; ++i) visit(static_cast<DType>(i), function);
}

DType dtype_at(int i) { return static_cast<DType>(i); }

bool narrows(DType from, DType to) {
  return (from == DType::kInt64 && to == DType::kInt32) ||
         (from == DType::kUint64 && to == DType::kUint32);
}

TEST(Convert, EveryPairConvertsEdgeValuesAsTheReference) {
  for (int a = 0; a < kDTypes; ++a) {
    for (int b = 0; b < kDTypes; ++b) {
      visit(dtype_at(a), [&](auto source) {
        visit(dtype_at(b), [&](auto target) {
          using From = typename decltype(source)::Type;
          using To = typename decltype(target)::Type;
          const Convert convert = converter(dtype_at(a), dtype_at(b));
          ASSERT_NE(convert, nullptr);
          for (const From value : edges<From>()) {
            std::byte from[sizeof(From)];
            std::byte to[sizeof(To)];
            std::memcpy(from, &value, sizeof(From));
            const std::int64_t fitting = convert(from, to, 1);
            To result;
            std::memcpy(&result, to, sizeof(To));
            const To expected = reference<To>(value);
            EXPECT_TRUE(same(result, expected))
                << name(dtype_at(a)) << " to " << name(dtype_at(b)) << ": "
                << described(value) << " became " << described(result) << ", not "
                << described(expected);
            const bool fits = !narrows(dtype_at(a), dtype_at(b)) ||
                              exact(result).real() == exact(value).real();
            EXPECT_EQ(fitting, fits ? 1 : 0)
                << name(dtype_at(a)) << " to " << name(dtype_at(b)) << ": "
                << described(value);
          }
        });
      });
    }
  }
}

TEST(Convert, FloatsSaturateAndNanBecomesZero) {
  EXPECT_EQ(converted<std::int8_t>(1e9f), 127);
  EXPECT_EQ(converted<std::int8_t>(-1e9f), -128);
  EXPECT_EQ(converted<std::uint8_t>(-1.0f), 0);
  EXPECT_EQ(converted<std::uint8_t>(255.9f), 255);
  EXPECT_EQ(converted<std::int32_t>(std::nanf("")), 0);
  EXPECT_EQ(converted<std::int64_t>(0x1p63), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(converted<std::uint64_t>(Half(HUGE_VALF)),
            std::numeric_limits<std::uint64_t>::max());
}

TEST(Convert, IntegersWrap) {
  EXPECT_EQ(converted<std::uint8_t>(std::int32_t{-1}), 255);
  EXPECT_EQ(converted<std::int8_t>(std::int32_t{200}), -56);
  EXPECT_EQ(converted<std::int32_t>((std::int64_t{1} << 40) + 5), 5);
}

TEST(Convert, NonzeroValuesBecomeTrue) {
  EXPECT_TRUE(converted<bool>(std::nanf("")));
  EXPECT_TRUE(converted<bool>(0.25f));
  EXPECT_TRUE(converted<bool>(std::int64_t{1} << 40));
  EXPECT_FALSE(converted<bool>(-0.0));
  EXPECT_EQ(converted<std::int16_t>(true), 1);
  EXPECT_EQ(static_cast<float>(converted<BFloat16>(true)), 1.0f);
}

TEST(Convert, ReturnsTheCountBeforeTheFirstValueThatDoesNotFit) {
  const std::int64_t values[] = {1, -(std::int64_t{1} << 31), 5, std::int64_t{1} << 31,
                                 std::int64_t{1} << 40};
  std::int32_t results[5];
  const Convert convert = converter(DType::kInt64, DType::kInt32);
  const auto* from = reinterpret_cast<const std::byte*>(values);
  auto* to = reinterpret_cast<std::byte*>(results);
  EXPECT_EQ(convert(from, to, 3), 3);
  EXPECT_EQ(convert(from, to, 5), 3);
  EXPECT_EQ(results[4], 0);
  EXPECT_EQ(convert(from, to, 0), 0);
}

TEST(Convert, UnsignedValuesFitUpToTheirOwnLimit) {
  const std::uint64_t values[] = {0xFFFFFFFFu, std::uint64_t{1} << 32};
  std::uint32_t results[2];
  const Convert convert = converter(DType::kUint64, DType::kUint32);
  EXPECT_EQ(convert(reinterpret_cast<const std::byte*>(values),
                    reinterpret_cast<std::byte*>(results), 2),
            1);
  EXPECT_EQ(results[0], 0xFFFFFFFFu);
}

TEST(Convert, RowsMayBeUnaligned) {
  std::vector<std::byte> from(1 + 7 * 8);
  std::vector<std::byte> to(1 + 7 * 4 + 1, std::byte{0xA5});
  for (std::int64_t i = 0; i < 7; ++i) {
    const double value = static_cast<double>(i) - 3.5;
    std::memcpy(from.data() + 1 + i * 8, &value, 8);
  }
  EXPECT_EQ(
      converter(DType::kFloat64, DType::kFloat32)(from.data() + 1, to.data() + 1, 7),
      7);
  for (std::int64_t i = 0; i < 7; ++i) {
    float value = 0;
    std::memcpy(&value, to.data() + 1 + i * 4, 4);
    EXPECT_EQ(value, static_cast<float>(i) - 3.5f);
  }
  EXPECT_EQ(to.front(), std::byte{0xA5});
  EXPECT_EQ(to.back(), std::byte{0xA5});
}

TEST(DType, NamesRoundTripAndSizesMatch) {
  int at = 0;
  for_each_dtype([&](auto tag) {
    const DType dtype = dtype_at(at++);
    EXPECT_EQ(dtype_named(name(dtype)), dtype);
    EXPECT_EQ(byte_size(dtype),
              static_cast<std::int64_t>(sizeof(typename decltype(tag)::Type)));
    EXPECT_LE(byte_size(narrowed(dtype)), byte_size(dtype));
  });
  EXPECT_EQ(narrowed(DType::kInt64), DType::kInt32);
  EXPECT_EQ(narrowed(DType::kUint64), DType::kUint32);
  EXPECT_EQ(narrowed(DType::kFloat64), DType::kFloat32);
  EXPECT_EQ(narrowed(DType::kComplex128), DType::kComplex64);
  EXPECT_EQ(narrowed(DType::kFloat16), DType::kFloat16);
}

TEST(DType, ValuesInDigestsNeverChange) {
  EXPECT_EQ(static_cast<int>(DType::kBool), 0);
  EXPECT_EQ(static_cast<int>(DType::kInt64), 4);
  EXPECT_EQ(static_cast<int>(DType::kUint64), 8);
  EXPECT_EQ(static_cast<int>(DType::kBfloat16), 10);
  EXPECT_EQ(static_cast<int>(DType::kComplex128), 14);
}

TEST(DType, RejectsUnknownNames) {
  try {
    dtype_named("float8");
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "unknown dtype 'float8': expected one of bool, int8, int16, int32, int64, "
        "uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64, "
        "complex64, complex128");
  }
}

}  // namespace
}  // namespace millstream
