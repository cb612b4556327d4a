#include "millstream/order/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {
namespace {

Permutation permutation(std::int64_t n, Seed seed, std::uint32_t epoch) {
  return {Grid(n), seed, epoch, Purpose::kShuffle};
}

std::vector<std::int64_t> all(std::int64_t n, Seed seed, std::uint32_t epoch,
                              Purpose purpose = Purpose::kShuffle) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(n));
  Permutation(Grid(n), seed, epoch, purpose).run(0, out);
  return out;
}

void expect_bijection(std::int64_t n, Seed seed, std::uint32_t epoch) {
  std::vector<bool> seen(static_cast<std::size_t>(n));
  for (const std::int64_t index : all(n, seed, epoch)) {
    ASSERT_GE(index, 0) << n;
    ASSERT_LT(index, n) << n;
    ASSERT_FALSE(seen[static_cast<std::size_t>(index)]) << n << ": " << index;
    seen[static_cast<std::size_t>(index)] = true;
  }
}

/// The images of positions 0, 1, n / 2, n - 2 and n - 1.
struct Golden {
  std::int64_t n;
  Seed seed;
  std::uint32_t epoch;
  std::array<std::int64_t, 5> indices;
};

std::string row(const Golden& golden) {
  std::ostringstream out;
  out << "    {" << golden.n << ", {" << golden.seed.low << "u, " << golden.seed.high
      << "u}, " << golden.epoch << "u, {";
  for (std::size_t i = 0; i < golden.indices.size(); ++i) {
    out << (i != 0 ? ", " : "") << golden.indices[i];
  }
  out << "}},";
  return out.str();
}

// To update the table, run the test: each failure prints its row with current values.
const std::vector<Golden> kGolden = {
    {5, {0u, 0u}, 0u, {1, 0, 4, 3, 2}},
    {5, {7u, 0u}, 1u, {2, 1, 3, 0, 4}},
    {5, {0u, 7u}, 1u, {2, 1, 4, 0, 3}},
    {5, {3735928559u, 305419896u}, 4294967295u, {3, 2, 1, 0, 4}},
    {128, {0u, 0u}, 0u, {39, 10, 85, 76, 2}},
    {128, {7u, 0u}, 1u, {84, 125, 118, 66, 26}},
    {128, {0u, 7u}, 1u, {105, 79, 123, 44, 7}},
    {128, {3735928559u, 305419896u}, 4294967295u, {24, 104, 52, 28, 105}},
    {129, {0u, 0u}, 0u, {9, 80, 128, 99, 121}},
    {129, {7u, 0u}, 1u, {87, 47, 70, 16, 3}},
    {129, {0u, 7u}, 1u, {4, 9, 76, 44, 31}},
    {129, {3735928559u, 305419896u}, 4294967295u, {108, 43, 113, 95, 35}},
    {60000, {0u, 0u}, 0u, {52967, 15418, 11909, 18284, 50893}},
    {60000, {7u, 0u}, 1u, {6758, 10866, 42659, 7490, 41080}},
    {60000, {0u, 7u}, 1u, {27447, 55820, 17119, 44670, 7690}},
    {60000,
     {3735928559u, 305419896u},
     4294967295u,
     {29601, 58766, 25436, 56705, 55025}},
    {1000000000, {0u, 0u}, 0u, {295542808, 958413970, 569370124, 782740335, 219998292}},
    {1000000000, {7u, 0u}, 1u, {387396223, 898827100, 223293122, 152663477, 519294897}},
    {1000000000, {0u, 7u}, 1u, {318990672, 393494301, 463733109, 67120016, 353050424}},
    {1000000000,
     {3735928559u, 305419896u},
     4294967295u,
     {605131652, 258779072, 756392039, 236924248, 401163166}},
    {1099511627777,
     {0u, 0u},
     0u,
     {974765229741, 207649014265, 865355942357, 566609720557, 919892888410}},
    {1099511627777,
     {7u, 0u},
     1u,
     {974864685978, 936641660722, 758241392763, 657656502609, 963153611281}},
    {1099511627777,
     {0u, 7u},
     1u,
     {101018554497, 663017302812, 215675240850, 50358430911, 847054248685}},
    {1099511627777,
     {3735928559u, 305419896u},
     4294967295u,
     {255999372937, 1067475780392, 972107327105, 7773752282, 382143442302}},
};

TEST(Permutation, NeverChangesBetweenVersions) {
  for (const Golden& golden : kGolden) {
    const Permutation now = permutation(golden.n, golden.seed, golden.epoch);
    const std::int64_t n = golden.n;
    const Golden made = {n,
                         golden.seed,
                         golden.epoch,
                         {now(0), now(1), now(n / 2), now(n - 2), now(n - 1)}};
    EXPECT_EQ(made.indices, golden.indices) << row(made);
  }
}

TEST(Permutation, PurposesHaveDifferentOrders) {
  EXPECT_NE(all(100, {1, 0}, 0, Purpose::kShuffle),
            all(100, {1, 0}, 0, Purpose::kSplit));
  EXPECT_NE(all(1000, {1, 0}, 0, Purpose::kShuffle),
            all(1000, {1, 0}, 0, Purpose::kSplit));
}

TEST(Permutation, IsABijectionOfEverySmallSize) {
  for (std::int64_t n = 1; n <= 2000; ++n) {
    expect_bijection(n, {static_cast<std::uint32_t>(n), 3}, 1);
    if (HasFatalFailure()) return;
  }
}

TEST(Permutation, IsABijectionOfLargeSizes) {
  for (const std::int64_t n : {4095, 4096, 4097, 65535, 65536, 65537, 1'000'000}) {
    expect_bijection(n, {0, 0}, 0);
    expect_bijection(n, {0xFFFFFFFF, 0xFFFFFFFF}, 0xFFFFFFFF);
  }
}

TEST(Permutation, RunsEqualSinglePositions) {
  for (const std::int64_t n : {5, 128, 129, 144, 145, 1000, 60000}) {
    const Permutation order = permutation(n, {9, 9}, 2);
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{1}, n / 2, n - 1}) {
      for (const std::int64_t wanted : {0, 1, 63, 64, 65, 700}) {
        const std::int64_t count = std::min(wanted, n - first);
        std::vector<std::int64_t> out(static_cast<std::size_t>(count) + 1, -7);
        order.run(first, std::span(out).first(static_cast<std::size_t>(count)));
        for (std::int64_t k = 0; k < count; ++k) {
          ASSERT_EQ(out[static_cast<std::size_t>(k)], order(first + k))
              << n << ", " << first << " + " << k;
        }
        ASSERT_EQ(out.back(), -7);
      }
    }
  }
}

TEST(Permutation, StaysInRangeUpToTheLargestSize) {
  constexpr std::int64_t kRun = 300;
  for (int bits = 8; bits <= 62; ++bits) {
    for (const std::int64_t by : {-1, 0, 1}) {
      const std::int64_t n = (std::int64_t{1} << bits) + by;
      if (n > kMaxSamples) continue;
      const std::int64_t length = std::min(n, kRun);
      const Permutation order = permutation(n, {1, 2}, 3);
      for (const std::int64_t first : {std::int64_t{0}, (n - length) / 2, n - length}) {
        std::vector<std::int64_t> out(static_cast<std::size_t>(length));
        order.run(first, out);
        for (std::int64_t k = 0; k < length; ++k) {
          const std::int64_t index = out[static_cast<std::size_t>(k)];
          ASSERT_GE(index, 0) << n;
          ASSERT_LT(index, n) << n;
          ASSERT_EQ(index, order(first + k)) << n;
        }
        EXPECT_EQ(std::set(out.begin(), out.end()).size(), out.size()) << n;
      }
    }
  }
}

TEST(Permutation, EpochsAndBothWordsOfTheSeedMatter) {
  for (const std::int64_t n : {100, 1000}) {
    const std::set<std::vector<std::int64_t>> seen = {
        all(n, {0, 0}, 0), all(n, {0, 0}, 1),          all(n, {1, 0}, 0),
        all(n, {0, 1}, 0), all(n, {0x80000000, 0}, 0), all(n, {0, 0}, 0x80000000)};
    EXPECT_EQ(seen.size(), 6u);
  }
}

TEST(Permutation, IsTheSameFromAnyThread) {
  const Permutation order = permutation(10'000, {3, 1}, 4);
  const auto expected = all(10'000, {3, 1}, 4);
  std::vector<std::vector<std::int64_t>> made(4, std::vector<std::int64_t>(10'000));
  {
    std::vector<std::jthread> threads;
    for (auto& out : made) threads.emplace_back([&] { order.run(0, out); });
  }
  for (const auto& out : made) EXPECT_EQ(out, expected);
}

TEST(Grid, HasFewUnusedCells) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t n = 1; n < 5000; ++n) sizes.push_back(n);
  for (std::int64_t root = 3; root < (std::int64_t{1} << 31); root = root * 2 - 1) {
    for (const std::int64_t by : {-1, 0, 1}) sizes.push_back(root * root + by);
    for (const std::int64_t by : {-1, 0, 1}) sizes.push_back(root * (root - 1) + by);
  }
  for (const std::int64_t by : {-2, -1, 0}) sizes.push_back(kMaxSamples + by);
  for (const std::int64_t n : sizes) {
    const Grid grid(n);
    const std::int64_t cells = std::int64_t{grid.rows} * grid.columns;
    ASSERT_GE(cells, n);
    ASSERT_LT(cells - n, grid.rows) << n;
    ASSERT_LE(grid.columns, grid.rows) << n;
    ASSERT_LE(grid.rows - grid.columns, 1u) << n;
  }
}

TEST(Grid, RejectsImpossibleSizes) {
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{-1}, kMaxSamples + 1}) {
    try {
      Grid grid(n);
      FAIL() << n;
    } catch (const ArgumentError& error) {
      EXPECT_EQ(error.what(),
                text("an order needs between 1 and 2^62 samples, not ", n));
    }
  }
}

}  // namespace
}  // namespace millstream
