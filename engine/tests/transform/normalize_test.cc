#include "millstream/transform/normalize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"
#include "millstream/transform/reshape.h"

namespace millstream {
namespace {

std::string refusal(const std::function<void()>& function) {
  try {
    function();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

/// Applies the transform to one row of values.
template <typename To, typename From>
std::vector<To> normalized(const Normalize& normalize, DType dtype,
                           std::vector<From> values, const Shape& shape) {
  const Flow flow = normalize.flow({{"x", dtype, shape}});
  std::vector<To> result(values.size());
  const Column from = {dtype, shape, reinterpret_cast<std::byte*>(values.data()), 0,
                       nullptr};
  const Column to = {flow.schema[0].dtype, shape,
                     reinterpret_cast<std::byte*>(result.data()), 0, nullptr};
  Memory memory;
  const std::int64_t index = 0;
  Rows out{{&to, 1}, memory};
  normalize.apply(flow, Request{{&index, 1}}, {{&from, 1}, memory}, out);
  return result;
}

template <typename To, typename From>
std::vector<To> normalized(const Normalize& normalize, DType dtype,
                           std::vector<From> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return normalized<To>(normalize, dtype, std::move(values), {count});
}

std::vector<std::uint8_t> all_bytes() {
  std::vector<std::uint8_t> values(256);
  for (std::size_t i = 0; i < 256; ++i) values[i] = static_cast<std::uint8_t>(i);
  return values;
}

TEST(Normalize, RoundsAfterEachOperationInFloat32) {
  const double scale = 1 / (255 * 0.3081);
  const double offset = -0.1307 / 0.3081;
  const auto made = normalized<float>(Normalize("x", DType::kFloat32, scale, offset),
                                      DType::kUint8, all_bytes());
  for (std::size_t i = 0; i < 256; ++i) {
    volatile float product = static_cast<float>(i) * static_cast<float>(scale);
    const float expected = product + static_cast<float>(offset);
    EXPECT_EQ(made[i], expected) << i;
  }
}

TEST(Normalize, RoundsAfterEachOperationInFloat64) {
  const auto made = normalized<double>(Normalize("x", DType::kFloat64, 0.1, 0.7),
                                       DType::kUint8, all_bytes());
  for (std::size_t i = 0; i < 256; ++i) {
    volatile double product = static_cast<double>(i) * 0.1;
    EXPECT_EQ(made[i], product + 0.7) << i;
  }
}

template <typename Small>
void expect_small_steps(DType dtype) {
  const auto made =
      normalized<Small>(Normalize("x", dtype, 0.1, 0.7), DType::kUint8, all_bytes());
  for (std::size_t i = 0; i < 256; ++i) {
    const auto value = static_cast<float>(Small(static_cast<float>(i)));
    const Small product(value * static_cast<float>(Small(0.1f)));
    const Small expected(static_cast<float>(product) + static_cast<float>(Small(0.7f)));
    EXPECT_EQ(made[i].bits, expected.bits) << i;
  }
}

TEST(Normalize, RoundsAfterEachOperationInSmallFloats) {
  expect_small_steps<Half>(DType::kFloat16);
  expect_small_steps<BFloat16>(DType::kBfloat16);
}

/// All bytes, three times each, as pixels with three channels.
std::vector<std::uint8_t> all_pixels() {
  std::vector<std::uint8_t> values(768);
  for (std::size_t i = 0; i < 768; ++i) values[i] = static_cast<std::uint8_t>(i / 3);
  return values;
}

TEST(Normalize, StandardizesEachChannelInFloat32) {
  const std::vector<double> mean = {0.485, 0.456, 0.406};
  const std::vector<double> std = {0.229, 0.224, 0.225};
  const Normalize normalize("x", DType::kFloat32, 1.0 / 255, 0.1, mean, std);
  const auto made =
      normalized<float>(normalize, DType::kUint8, all_pixels(), {16, 16, 3});
  for (std::size_t i = 0; i < made.size(); ++i) {
    volatile float product = static_cast<float>(i / 3) * static_cast<float>(1.0 / 255);
    volatile float sum = product + 0.1f;
    volatile float difference = sum - static_cast<float>(mean[i % 3]);
    EXPECT_EQ(made[i], difference / static_cast<float>(std[i % 3])) << i;
  }
}

template <typename Small>
void expect_small_channels(DType dtype) {
  const std::vector<double> mean = {0.485, 0.456, 0.406};
  const Normalize normalize("x", dtype, 0.1, 0.0, mean, 0.3);
  const auto made = normalized<Small>(normalize, DType::kUint8, all_pixels(), {256, 3});
  const auto rounded = [](float value) { return static_cast<float>(Small(value)); };
  for (std::size_t i = 0; i < made.size(); ++i) {
    const float product = rounded(rounded(static_cast<float>(i / 3)) * rounded(0.1f));
    const float difference =
        rounded(product - rounded(static_cast<float>(mean[i % 3])));
    EXPECT_EQ(made[i].bits, Small(difference / rounded(0.3f)).bits) << i;
  }
}

TEST(Normalize, StandardizesEachChannelInSmallFloats) {
  expect_small_channels<Half>(DType::kFloat16);
  expect_small_channels<BFloat16>(DType::kBfloat16);
}

TEST(Normalize, OneMeanAndStandardDeviationTakeAnyShape) {
  const Normalize normalize("x", DType::kFloat64, 1, 0, 1.5, 2.0);
  for (const Shape& shape : {Shape{200}, Shape{100, 2}, Shape{2, 100, 1}}) {
    const std::vector<double> made = normalized<double>(
        normalize, DType::kUint8, std::vector<std::uint8_t>(200, 4), shape);
    EXPECT_EQ(made, std::vector<double>(200, 1.25)) << shape.str();
  }
}

TEST(Normalize, TakesManyChannels) {
  std::vector<double> mean(150);
  for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = static_cast<double>(i);
  const Normalize normalize("x", DType::kFloat32, 1, 0, mean);
  const auto made = normalized<float>(normalize, DType::kUint8,
                                      std::vector<std::uint8_t>(300, 9), {2, 150});
  for (std::size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ(made[i], 9.0f - static_cast<float>(i % 150)) << i;
  }
}

TEST(Normalize, WritesTheSameBytesToALargeBatch) {
  std::vector<Normalize> all;
  for (const double offset : {0.0, -0.25}) {
    all.emplace_back("x", DType::kFloat32, 1, offset);
    all.emplace_back("x", DType::kFloat32, 1 / 255.0, offset);
    all.emplace_back("x", DType::kFloat32, 1 / 255.0, offset, 0.45, 0.22);
    all.emplace_back("x", DType::kFloat32, 1 / 255.0, offset,
                     std::vector<double>{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7},
                     std::vector<double>{0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3});
  }
  constexpr std::int64_t kRows = 5;
  const std::int64_t indices[kRows] = {};
  for (const Normalize& normalize : all) {
    for (const std::int64_t side : {1, 2, 3, 9, 64}) {
      const Shape shape = {side, 7};
      const std::int64_t count = side * 7;
      std::vector<std::uint8_t> values;
      for (std::int64_t i = 0; i < count * kRows; ++i) {
        values.push_back(static_cast<std::uint8_t>(i * 37 + i / 256));
      }
      const Column from = {DType::kUint8, shape,
                           reinterpret_cast<std::byte*>(values.data()), count, nullptr};
      const Flow flow = normalize.flow({{"x", DType::kUint8, shape}});
      std::vector<std::vector<float>> made;
      for (const bool large : {false, true}) {
        auto& out = made.emplace_back(count * kRows + 2, -1.0F);
        const Column to = {
            DType::kFloat32, shape,   reinterpret_cast<std::byte*>(out.data() + 1),
            count * 4,       nullptr, large};
        Memory memory;
        Rows rows{{&to, 1}, memory};
        normalize.apply(flow, Request{indices}, {{&from, 1}, memory}, rows);
      }
      EXPECT_EQ(std::memcmp(made[0].data(), made[1].data(), made[0].size() * 4), 0);
      EXPECT_EQ(made[1].front(), -1.0F);
      EXPECT_EQ(made[1].back(), -1.0F);
    }
  }
}

TEST(Normalize, RejectsAnotherNumberOfChannels) {
  const std::vector<double> three = {1, 2, 3};
  const Normalize mean("x", DType::kFloat32, 1, 0, three);
  EXPECT_EQ(refusal([&] {
              mean.flow({{"x", DType::kUint8, {28, 28, 1}}});
            }),
            "normalize(x): mean has 3 entries, but the last axis of x: "
            "uint8(28, 28, 1) has 1 channels. Pass one entry per channel, or one "
            "number");
  const Normalize std("x", DType::kFloat32, 1, 0, 0.5, three);
  EXPECT_EQ(refusal([&] {
              std.flow({{"x", DType::kUint8, {}}});
            }),
            "normalize(x): std has 3 entries, but the last axis of x: uint8() has 0 "
            "channels. Pass one entry per channel, or one number");
}

TEST(Normalize, RejectsAMeanAndAStandardDeviationThatDisagree) {
  const std::vector<double> two = {1, 2};
  const std::vector<double> three = {1, 2, 3};
  const std::vector<double> none;
  EXPECT_EQ(refusal([&] { Normalize("x", DType::kFloat32, 1, 0, two, three); }),
            "normalize(x): mean has 2 entries, but std has 3. Pass one entry per "
            "channel to both");
  EXPECT_EQ(refusal([&] { Normalize("x", DType::kFloat32, 1, 0, none); }),
            "normalize(x): mean has no entries. Pass a number, or one per channel");
  EXPECT_EQ(refusal([&] { Normalize("x", DType::kInt8, 1, 0, 2.0); }),
            "normalize(x): a mean and a standard deviation need a floating dtype, not "
            "int8");
}

TEST(Normalize, WithoutAnOffsetKeepsNegativeZero) {
  const auto made = normalized<float>(Normalize("x", DType::kFloat32, 2.0),
                                      DType::kFloat32, std::vector<float>{-0.0f, 1.5f});
  EXPECT_TRUE(std::signbit(made[0]));
  EXPECT_EQ(made[1], 3.0f);
}

TEST(Normalize, TakesEveryRealDtype) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (is_complex_dtype(dtype)) continue;
    visit(dtype, [&](auto tag) {
      using From = typename decltype(tag)::Type;
      if constexpr (!is_complex<From> && !std::is_same_v<From, bool>) {
        const std::vector<From> values(33, converted<From>(3));
        const auto made =
            normalized<float>(Normalize("x", DType::kFloat32, 0.5, -1), dtype, values);
        EXPECT_EQ(made, std::vector<float>(33, 0.5f)) << name(dtype);
      }
    });
  }
}

TEST(Normalize, CastsWithoutArithmetic) {
  const auto made = normalized<std::uint8_t>(
      Normalize("x", DType::kUint8), DType::kFloat32,
      std::vector<float>{-1, 0.5f, 254.9f, 300, std::nanf(""), HUGE_VALF});
  EXPECT_EQ(made, (std::vector<std::uint8_t>{0, 0, 254, 255, 0, 255}));
  const auto wrapped = normalized<std::int8_t>(
      Normalize("x", DType::kInt8), DType::kInt32, std::vector<std::int32_t>{200, -1});
  EXPECT_EQ(wrapped, (std::vector<std::int8_t>{-56, -1}));
}

TEST(Normalize, MakesTheFieldUnlessNothingChanges) {
  const Schema input = {{"x", DType::kUint8, {4, 4}}, {"y", DType::kInt32, {}}};
  const Flow made = Normalize("x", DType::kFloat32, 2).flow(input);
  EXPECT_EQ(made.schema, (Schema{{"x", DType::kFloat32, {4, 4}}, input[1]}));
  EXPECT_EQ(made.from, (std::vector<int>{Flow::kMade, 1}));
  const Flow passed = Normalize("x", DType::kUint8).flow(input);
  EXPECT_EQ(passed.schema, input);
  EXPECT_EQ(passed.from, (std::vector<int>{0, 1}));
}

TEST(Normalize, StrNamesTheFieldAndTheDtype) {
  EXPECT_EQ(Normalize("x", DType::kFloat32, 2).str(), "normalize(x)");
  EXPECT_EQ(Normalize("x", DType::kInt16).str(), "cast(x, int16)");
}

TEST(Normalize, RejectsAScaleForAnIntegerDtype) {
  EXPECT_EQ(
      refusal([] { Normalize("x", DType::kUint8, 0.5); }),
      "normalize(x): a scale of 0.5 and an offset of 0 need a floating dtype, not "
      "uint8");
  EXPECT_NE(refusal([] { Normalize("x", DType::kComplex64, 1, 2); }), "");
}

TEST(Normalize, RejectsACastThatLosesTheImaginaryPart) {
  EXPECT_EQ(refusal([] {
              Normalize("x", DType::kFloat32).flow({{"x", DType::kComplex64, {2}}});
            }),
            "cast(x, float32): x: complex64(2,) would lose its imaginary part as "
            "float32");
}

TEST(Normalize, RejectsAMissingField) {
  EXPECT_EQ(refusal([] {
              Normalize("z", DType::kInt8).flow({{"x", {}, {}}});
            }),
            "cast(z, int8): there is no field 'z', only 'x'");
}

TEST(Flatten, JoinsAxesFromTheFirstOn) {
  const Schema input = {{"x", DType::kUint8, {2, 3, 4}}, {"y", DType::kInt32, {}}};
  const auto shape = [&](const Flatten& flatten, std::size_t field) {
    const Flow flow = flatten.flow(input);
    EXPECT_EQ(flow.from, (std::vector<int>{0, 1}));
    return flow.schema[field].shape;
  };
  EXPECT_EQ(shape(Flatten("x"), 0), Shape({24}));
  EXPECT_EQ(shape(Flatten("x", 1), 0), Shape({2, 12}));
  EXPECT_EQ(shape(Flatten("x", 2), 0), Shape({2, 3, 4}));
  EXPECT_EQ(shape(Flatten("x", 3), 0), Shape({2, 3, 4, 1}));
  EXPECT_EQ(shape(Flatten("y"), 1), Shape({1}));
}

TEST(Flatten, RejectsAxesThatDoNotExist) {
  EXPECT_EQ(refusal([] { Flatten("x", -1); }),
            "flatten(x): the first axis cannot be -1");
  EXPECT_EQ(refusal([] {
              Flatten("x", 3).flow({{"x", DType::kUint8, {2, 2}}});
            }),
            "flatten(x): axis 3 is out of range for x: uint8(2, 2)");
}

TEST(Rename, RenamesFields) {
  const Schema input = {{"a", DType::kUint8, {2}}, {"b", DType::kInt32, {}}};
  const Flow flow = Rename({{"a", "b"}, {"b", "a"}}).flow(input);
  EXPECT_EQ(flow.schema, (Schema{{"b", DType::kUint8, {2}}, {"a", DType::kInt32, {}}}));
  EXPECT_EQ(flow.from, (std::vector<int>{0, 1}));
}

Rename renamed(const std::string& from, const std::string& to) {
  return Rename(std::map<std::string, std::string>{{from, to}});
}

TEST(Rename, RejectsMissingFieldsAndDuplicateNames) {
  const Schema input = {{"a", DType::kUint8, {2}}, {"b", DType::kInt32, {}}};
  EXPECT_EQ(refusal([&] { renamed("c", "d").flow(input); }),
            "rename: there is no field 'c', only 'a', 'b'");
  EXPECT_EQ(refusal([&] { renamed("a", "b").flow(input); }),
            "rename: two fields would be called 'b'");
}

}  // namespace
}  // namespace millstream
