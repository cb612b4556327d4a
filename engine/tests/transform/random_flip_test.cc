#include "millstream/transform/random_flip.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "millstream/core/error.h"

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

/// Flips `rows` rows that all contain 0, 1, 2, ... Row k is sample k of epoch 2.
std::vector<std::vector<std::uint8_t>> flipped(const RandomFlip& flip,
                                               const Shape& shape, std::int64_t rows) {
  std::vector<std::uint8_t> values(static_cast<std::size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), std::uint8_t{0});
  std::vector<std::vector<std::uint8_t>> made(static_cast<std::size_t>(rows), values);
  std::vector<std::byte*> pointers;
  for (auto& row : made) pointers.push_back(reinterpret_cast<std::byte*>(row.data()));
  const Column from = {DType::kUint8, shape,
                       reinterpret_cast<std::byte*>(values.data()), 0, nullptr};
  const Column to = {DType::kUint8, shape, nullptr, 0, pointers.data()};
  std::vector<std::int64_t> indices(static_cast<std::size_t>(rows));
  std::iota(indices.begin(), indices.end(), 0);
  const std::vector<std::uint32_t> epochs(indices.size(), 2);
  Memory memory;
  Rows out{{&to, 1}, memory};
  const Request request = {indices, epochs, {5, 6}, 0, kNoContext, 0x60000};
  flip.apply(flip.flow({{"x", DType::kUint8, shape}}), request, {{&from, 1}, memory},
             out);
  return made;
}

using Row = std::vector<std::uint8_t>;

TEST(RandomFlip, ReversesOneAxis) {
  EXPECT_EQ(flipped(RandomFlip({"x"}, 1, 1), {2, 3}, 1)[0], (Row{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(flipped(RandomFlip({"x"}, 0, 1), {2, 3}, 1)[0], (Row{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(flipped(RandomFlip({"x"}, -1, 1), {2, 3}, 1)[0], (Row{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(flipped(RandomFlip({"x"}, -2, 1), {1, 3, 2}, 1)[0],
            (Row{4, 5, 2, 3, 0, 1}));
}

TEST(RandomFlip, TakesElementsOfEverySize) {
  for (std::int64_t bytes = 1; bytes <= 40; ++bytes) {
    const Row made = flipped(RandomFlip({"x"}, 0, 1), {4, bytes}, 1)[0];
    for (std::size_t i = 0; i < made.size(); ++i) {
      const auto size = static_cast<std::size_t>(bytes);
      ASSERT_EQ(made[i], (3 - i / size) * size + i % size) << bytes;
    }
  }
}

TEST(RandomFlip, DrawsOncePerSample) {
  const auto made = flipped(RandomFlip({"x"}, 0, 0.25), {2}, 4000);
  int count = 0;
  for (std::size_t k = 0; k < made.size(); ++k) {
    const bool flips =
        Random({5, 6}, 2, static_cast<std::int64_t>(k), 0x60000).uniform() < 0.25f;
    EXPECT_EQ(made[k], flips ? (Row{1, 0}) : (Row{0, 1})) << k;
    count += flips;
  }
  EXPECT_NEAR(count, 1000, 120);
}

TEST(RandomFlip, ProbabilitiesOfZeroAndOneAreExact) {
  for (const Row& row : flipped(RandomFlip({"x"}, 0, 0), {2}, 1000)) {
    EXPECT_EQ(row, (Row{0, 1}));
  }
  for (const Row& row : flipped(RandomFlip({"x"}, 0, 1), {2}, 1000)) {
    EXPECT_EQ(row, (Row{1, 0}));
  }
}

TEST(RandomFlip, RejectsWrongArguments) {
  EXPECT_EQ(refusal([] { RandomFlip({}); }),
            "random_flip: there are no fields to flip");
  EXPECT_EQ(refusal([] {
              RandomFlip({"a", "b"}, 1, 1.5);
            }),
            "random_flip(a, b): the probability must be from 0 to 1, not 1.5");
}

TEST(RandomFlip, RejectsAxesThatDoNotExist) {
  const Schema input = {{"x", DType::kUint8, {4, 5}}};
  EXPECT_EQ(refusal([&] { RandomFlip({"x"}, 2).flow(input); }),
            "random_flip(x): axis 2 is out of range for x: uint8(4, 5), which has 2 "
            "axes");
  EXPECT_NE(refusal([&] { RandomFlip({"x"}, -3).flow(input); }), "");
}

TEST(RandomFlip, RejectsANegativeAxisThatMeansDifferentAxes) {
  const Schema input = {{"x", DType::kUint8, {4, 5, 3}}, {"y", DType::kUint8, {4, 5}}};
  EXPECT_EQ(refusal([&] {
              RandomFlip({"x", "y"}, -2).flow(input);
            }),
            "random_flip(x, y): axis -2 is axis 1 of x: uint8(4, 5, 3), but axis 0 of "
            "y: uint8(4, 5). Use axis=1 or axis=0");
}

}  // namespace
}  // namespace millstream
