#include "millstream/core/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace millstream {
namespace {

using Block = std::array<std::uint32_t, 4>;

Block first_words(Random random) {
  return {random.bits(), random.bits(), random.bits(), random.bits()};
}

TEST(Philox, MatchesThePublishedVectors) {
  // From kat_vectors in Random123.
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF},
                   {0xFFFFFFFF, 0xFFFFFFFF}),
            (Block{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344},
                   {0xA4093822, 0x299F31D0}),
            (Block{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Random, NumbersNeverChangeBetweenVersions) {
  EXPECT_EQ(first_words(Random({0, 0}, 0, 0, 0)),
            (Block{0xB3A6F77D, 0x47E4D41C, 0x7883625A, 0xFBFA3E3A}));
  EXPECT_EQ(first_words(Random({7, 1}, 3, std::int64_t{1} << 33, 2)),
            (Block{0x257337B3, 0xA63A6D3C, 0xB0DE706C, 0x872B7485}));
}

TEST(Random, IsAPureFunctionOfItsArguments) {
  Random a({1, 2}, 3, 4, 5);
  Random b({1, 2}, 3, 4, 5);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(a.bits(), b.bits());
}

TEST(Random, DependsOnEveryArgument) {
  const std::vector<Random> streams = {
      Random({1, 2}, 3, 4, 5),
      Random({2, 2}, 3, 4, 5),
      Random({1, 3}, 3, 4, 5),
      Random({2, 1}, 3, 4, 5),
      Random({1, 2}, 4, 4, 5),
      Random({1, 2}, 3, 5, 5),
      Random({1, 2}, 3, 4 + (std::int64_t{1} << 32), 5),
      Random({1, 2}, 3, -1, 5),
      Random({1, 2}, 3, 4, 6),
      Random({1, 2}, 4, 3, 5),
  };
  std::set<Block> seen;
  for (const Random& stream : streams) seen.insert(first_words(stream));
  EXPECT_EQ(seen.size(), streams.size());
}

TEST(Random, StreamsOfNeighbouringSamplesShareNoWord) {
  std::set<std::uint32_t> seen;
  for (std::int64_t sample = 0; sample < 100; ++sample) {
    for (const std::uint32_t word : first_words(Random({0, 0}, 0, sample, 0))) {
      seen.insert(word);
    }
  }
  EXPECT_GE(seen.size(), 399u);
}

TEST(Random, UniformStaysBelowOneAndIsUniform) {
  constexpr int kBins = 64;
  constexpr int kDraws = 200'000;
  std::array<int, kBins> counts{};
  Random random({11, 0}, 0, 0, 0);
  for (int i = 0; i < kDraws; ++i) {
    const float value = random.uniform();
    ASSERT_GE(value, 0.0f);
    ASSERT_LT(value, 1.0f);
    ++counts[static_cast<std::size_t>(value * kBins)];
  }
  double statistic = 0;
  for (const int count : counts) {
    const double expected = double{kDraws} / kBins;
    statistic += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(std::fabs(statistic - (kBins - 1)), 5 * std::sqrt(2.0 * (kBins - 1)));
}

TEST(Random, BelowIsUniformInItsRange) {
  for (const std::uint32_t n : {1u, 2u, 3u, 7u, 100u}) {
    constexpr int kDraws = 100'000;
    std::vector<int> counts(n);
    Random random({12, 0}, 0, 0, n);
    for (int i = 0; i < kDraws; ++i) {
      const std::uint32_t value = random.below(n);
      ASSERT_LT(value, n);
      ++counts[value];
    }
    double statistic = 0;
    for (const int count : counts) {
      const double expected = double{kDraws} / n;
      statistic += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LE(std::fabs(statistic - (n - 1)), 5 * std::sqrt(2.0 * (n - 1))) << n;
  }
}

TEST(Random, BelowReachesTheEndsOfTheLargestRange) {
  Random random({13, 0}, 0, 0, 0);
  std::uint32_t lowest = 0xFFFFFFFF;
  std::uint32_t highest = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint32_t value = random.below(0xFFFFFFFF);
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  EXPECT_LT(lowest, 0x00400000u);
  EXPECT_GT(highest, 0xFFC00000u);
}

TEST(Random, Bits64AreTwoWords) {
  Random words({14, 0}, 2, 3, 4);
  Random random({14, 0}, 2, 3, 4);
  const std::uint64_t high = words.bits();
  EXPECT_EQ(random.bits64(), (high << 32) | words.bits());
  EXPECT_EQ(random.bits(), words.bits());
}

TEST(Purpose, ValuesNeverChange) {
  EXPECT_EQ(static_cast<int>(Purpose::kShuffle), 1);
  EXPECT_EQ(static_cast<int>(Purpose::kReplacement), 2);
  EXPECT_EQ(static_cast<int>(Purpose::kWeighted), 3);
  EXPECT_EQ(static_cast<int>(Purpose::kSplit), 4);
  EXPECT_EQ(static_cast<int>(Purpose::kTransform), 5);
  EXPECT_EQ(static_cast<int>(Purpose::kMixture), 6);
}

}  // namespace
}  // namespace millstream
