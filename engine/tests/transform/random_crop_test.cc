#include "millstream/transform/random_crop.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {
namespace {

constexpr std::int64_t kHeight = 4;
constexpr std::int64_t kWidth = 3;
constexpr std::int64_t kRows = 2000;

std::string refusal(const std::function<void()>& function) {
  try {
    function();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

using Values = std::vector<std::uint16_t>;

/// The offset of sample k of epoch 2, before the padding is subtracted.
HeightWidth offset(std::size_t k, HeightWidth size, HeightWidth padding) {
  Random random({5, 6}, 2, static_cast<std::int64_t>(k), 0x70000);
  const std::int64_t top = random.below(
      static_cast<std::uint32_t>(kHeight + 2 * padding.height - size.height + 1));
  const std::int64_t left = random.below(
      static_cast<std::uint32_t>(kWidth + 2 * padding.width - size.width + 1));
  return {top, left};
}

/// Crops `kRows` images of 4 x 3 that contain 1, 2, 3, ... and checks every pixel.
/// Returns the offsets that were drawn.
std::set<std::pair<std::int64_t, std::int64_t>> check(HeightWidth size,
                                                      HeightWidth padding) {
  const Shape shape = {kHeight, kWidth};
  Values image(static_cast<std::size_t>(shape.elements()));
  std::iota(image.begin(), image.end(), std::uint16_t{1});
  const auto pixels = static_cast<std::size_t>(size.height * size.width);
  Values made(pixels * kRows, 77);
  const Column from = {DType::kUint16, shape,
                       reinterpret_cast<std::byte*>(image.data()), 0, nullptr};
  const Column to = {DType::kUint16,
                     {size.height, size.width},
                     reinterpret_cast<std::byte*>(made.data()),
                     size.height * size.width * 2,
                     nullptr};
  std::vector<std::int64_t> indices(kRows);
  std::iota(indices.begin(), indices.end(), 0);
  const std::vector<std::uint32_t> epochs(indices.size(), 2);
  Memory memory;
  Rows out{{&to, 1}, memory};
  const Request request = {indices, epochs, {5, 6}, 0, kNoContext, 0x70000};
  const RandomCrop crop({"x"}, size, padding);
  crop.apply(crop.flow({{"x", DType::kUint16, shape}}), request, {{&from, 1}, memory},
             out);
  std::set<std::pair<std::int64_t, std::int64_t>> offsets;
  for (std::size_t k = 0; k < kRows; ++k) {
    const auto [top, left] = offset(k, size, padding);
    offsets.insert({top, left});
    for (std::int64_t i = 0; i < size.height * size.width; ++i) {
      const std::int64_t y = top + i / size.width - padding.height;
      const std::int64_t x = left + i % size.width - padding.width;
      const bool inside = y >= 0 && y < kHeight && x >= 0 && x < kWidth;
      const std::int64_t expected = inside ? y * kWidth + x + 1 : 0;
      EXPECT_EQ(made[k * pixels + static_cast<std::size_t>(i)], expected) << k;
    }
  }
  return offsets;
}

TEST(RandomCrop, CropsInsideTheImage) {
  EXPECT_EQ(check({2, 2}, {}).size(), 3 * 2);
  EXPECT_EQ(check({1, 3}, {}).size(), 4);
}

TEST(RandomCrop, PadsWithZeros) {
  EXPECT_EQ(check({4, 3}, {1, 2}).size(), 3 * 5);
  EXPECT_EQ(check({6, 5}, {1, 1}).size(), 1);
  EXPECT_EQ(check({5, 2}, {2, 0}).size(), 4 * 2);
}

TEST(RandomCrop, MayLieInThePaddingOnly) {
  EXPECT_EQ(check({1, 1}, {3, 3}).size(), 90);
}

TEST(RandomCrop, OfTheWholeImageChangesNothing) {
  EXPECT_EQ(check({4, 3}, {}).size(), 1);
}

TEST(RandomCrop, ChangesTheShape) {
  const Schema input = {{"x", DType::kFloat32, {8, 9, 3}}, {"y", DType::kInt8, {8, 9}}};
  const Flow flow = RandomCrop({"x", "y"}, {5, 6}).flow(input);
  EXPECT_EQ(flow.schema,
            (Schema{{"x", DType::kFloat32, {5, 6, 3}}, {"y", DType::kInt8, {5, 6}}}));
  EXPECT_EQ(flow.from, (std::vector<int>{Flow::kMade, Flow::kMade}));
}

TEST(RandomCrop, RejectsWrongArguments) {
  EXPECT_EQ(refusal([] {
              RandomCrop({}, {1, 1});
            }),
            "random_crop: there are no fields to crop");
  EXPECT_EQ(refusal([] {
              RandomCrop({"x"}, {0, 1});
            }),
            "random_crop(x): the size must be from 1 to 2147483647, not 0");
  EXPECT_EQ(refusal([] {
              RandomCrop({"x"}, {1, 1}, {0, -1});
            }),
            "random_crop(x): the padding must be from 0 to 2147483647, not -1");
}

TEST(RandomCrop, RejectsFieldsThatItCannotCrop) {
  const Schema input = {{"x", DType::kUint8, {8, 9, 3}},
                        {"y", DType::kUint8, {8, 8}},
                        {"z", DType::kUint8, {8}}};
  EXPECT_EQ(refusal([&] {
              RandomCrop({"z"}, {1, 1}).flow(input);
            }),
            "random_crop(z): z: uint8(8,) has 1 axes, but an image has at least 2: "
            "height and width");
  EXPECT_EQ(
      refusal([&] {
        RandomCrop({"x", "y"}, {1, 1}).flow(input);
      }),
      "random_crop(x, y): 'x' is 8 x 9, but 'y' is 8 x 8. Images that are cropped "
      "together must have the same height and width");
  EXPECT_EQ(refusal([&] {
              RandomCrop({"x"}, {8, 12}, {0, 1}).flow(input);
            }),
            "random_crop(x): a crop of 8 x 12 does not fit into x: uint8(8, 9, 3), "
            "which is 8 x 11 with its padding. Use a smaller size or more padding");
}

}  // namespace
}  // namespace millstream
