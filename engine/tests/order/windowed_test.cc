#include "millstream/order/windowed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {
namespace {

std::vector<std::int64_t> epoch_of(const Order& order, Seed seed, std::uint32_t epoch) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(order.length()));
  order.run(seed, epoch, 0, out);
  return out;
}

std::int64_t at(const Order& order, Seed seed, std::uint32_t epoch,
                std::int64_t position) {
  std::int64_t out = -1;
  order.run(seed, epoch, position, std::span(&out, 1));
  return out;
}

void expect_bijection(std::int64_t n, std::int64_t block, std::int64_t window,
                      Seed seed, std::uint32_t epoch) {
  SCOPED_TRACE(text("n ", n, ", block ", block, ", window ", window));
  std::vector<bool> seen(static_cast<std::size_t>(n));
  for (const std::int64_t index :
       epoch_of(WindowedShuffle(n, block, window), seed, epoch)) {
    ASSERT_GE(index, 0);
    ASSERT_LT(index, n);
    ASSERT_FALSE(seen[static_cast<std::size_t>(index)]) << index;
    seen[static_cast<std::size_t>(index)] = true;
  }
}

/// Divides an epoch into windows by looking only at the blocks.
void expect_windows(std::int64_t n, std::int64_t block, std::int64_t window,
                    std::uint32_t epoch) {
  SCOPED_TRACE(text("n ", n, ", block ", block, ", window ", window));
  const auto order = epoch_of(WindowedShuffle(n, block, window), {5, 6}, epoch);
  const std::int64_t blocks = (n + block - 1) / block;
  const std::int64_t last = n - (blocks - 1) * block;
  std::size_t begin = 0;
  std::int64_t left = blocks;
  while (left > 0) {
    const std::int64_t slots = std::min(window, left);
    std::set<std::int64_t> touched;
    std::size_t end = begin;
    std::int64_t length = slots * block;
    while (end < order.size() && static_cast<std::int64_t>(end - begin) < length) {
      const std::int64_t its = order[end++] / block;
      if (touched.insert(its).second && its == blocks - 1) length -= block - last;
    }
    ASSERT_EQ(static_cast<std::int64_t>(touched.size()), slots);
    left -= slots;
    begin = end;
  }
  ASSERT_EQ(begin, order.size());
}

/// The images of positions 0, 1, n / 2, n - 2 and n - 1.
struct Golden {
  std::int64_t n;
  std::int64_t block;
  std::int64_t window;
  Seed seed;
  std::uint32_t epoch;
  std::array<std::int64_t, 5> indices;
};

std::string row(const Golden& golden) {
  std::ostringstream out;
  out << "    {" << golden.n << ", " << golden.block << ", " << golden.window << ", {"
      << golden.seed.low << "u, " << golden.seed.high << "u}, " << golden.epoch
      << "u, {";
  for (std::size_t i = 0; i < golden.indices.size(); ++i) {
    out << (i != 0 ? ", " : "") << golden.indices[i];
  }
  out << "}},";
  return out.str();
}

// To update the table, run the test: each failure prints its row with current values.
const std::vector<Golden> kGolden = {
    {10, 3, 2, {0u, 0u}, 0u, {3, 5, 7, 6, 8}},
    {10, 3, 2, {7u, 9u}, 1u, {9, 3, 0, 2, 7}},
    {1000, 16, 4, {0u, 0u}, 0u, {826, 932, 292, 967, 973}},
    {1000, 16, 4, {7u, 0u}, 1u, {118, 557, 170, 724, 734}},
    {1000, 16, 4, {0u, 7u}, 1u, {751, 746, 351, 232, 905}},
    {60000,
     256,
     16,
     {3735928559u, 305419896u},
     4294967295u,
     {34871, 16997, 12391, 3674, 21846}},
    {1000000007,
     1024,
     16,
     {1u, 2u},
     3u,
     {459702375, 298663028, 465340353, 607206500, 607207419}},
    {4611686018427387904,
     1024,
     16,
     {1u, 2u},
     3u,
     {1990926287702774887, 1514569497992358004, 3910550405706218345,
      3263915917758485183, 3547190479679502487}},
    {4611686018427387903,
     1000000007,
     1000003,
     {1u, 2u},
     3u,
     {4082996827888476958, 864425787517505065, 2365735333021087414, 3224362893660218385,
      1346138914359770999}},
};

TEST(WindowedShuffle, KeepsItsGoldenValues) {
  for (const Golden& golden : kGolden) {
    const WindowedShuffle order(golden.n, golden.block, golden.window);
    Golden found = golden;
    const std::array<std::int64_t, 5> positions = {0, 1, golden.n / 2, golden.n - 2,
                                                   golden.n - 1};
    for (std::size_t i = 0; i < positions.size(); ++i) {
      found.indices[i] = at(order, golden.seed, golden.epoch, positions[i]);
    }
    EXPECT_EQ(found.indices, golden.indices) << row(found);
  }
}

TEST(WindowedShuffle, IsABijectionOfEverySmallSize) {
  for (std::int64_t n = 1; n <= 150; ++n) {
    for (const std::int64_t block : {1, 2, 3, 7, 10, 64, 149, 1000}) {
      for (const std::int64_t window : {1, 2, 3, 5, 40, 1000}) {
        const auto seed = static_cast<std::uint32_t>(n * block);
        expect_bijection(n, block, window, {seed, 1}, 2);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(WindowedShuffle, IsABijectionOfLargeSizes) {
  for (const std::int64_t n : {4095, 4096, 4097, 65537, 200'000}) {
    for (const std::int64_t block : {1, 100, 1024, 4096}) {
      for (const std::int64_t window : {1, 16, 129}) {
        expect_bijection(n, block, window, {0, 0}, 0);
        expect_bijection(n, block, window, {0xFFFFFFFF, 0xFFFFFFFF}, 0xFFFFFFFF);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(WindowedShuffle, AWindowReadsOnlyItsBlocks) {
  for (const std::int64_t n : {1, 5, 100, 101, 1000, 10'007, 65'536}) {
    for (const std::int64_t block : {1, 7, 64, 1000}) {
      for (const std::int64_t window : {1, 2, 5, 16}) {
        for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
          expect_windows(n, block, window, epoch);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(WindowedShuffle, AShortRangeReadsTheBlocksOfAtMostTwoWindows) {
  constexpr std::int64_t kBlock = 32;
  constexpr std::int64_t kWindow = 4;
  constexpr std::size_t kStretch = kBlock * kWindow / 2;
  const auto order = epoch_of(WindowedShuffle(5003, kBlock, kWindow), {1, 1}, 0);
  std::map<std::int64_t, int> touched;
  for (std::size_t i = 0; i < order.size(); ++i) {
    ++touched[order[i] / kBlock];
    if (i >= kStretch) {
      const auto old = touched.find(order[i - kStretch] / kBlock);
      if (--old->second == 0) touched.erase(old);
    }
    ASSERT_LE(touched.size(), 2u * kWindow);
  }
}

TEST(WindowedShuffle, RunsEqualSinglePositions) {
  for (const std::int64_t n : {5, 129, 1000, 3001}) {
    for (const std::int64_t block : {1, 10, 64}) {
      const WindowedShuffle order(n, block, 3);
      const auto whole = epoch_of(order, {9, 9}, 2);
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(whole[static_cast<std::size_t>(i)], at(order, {9, 9}, 2, i));
      }
      for (const std::int64_t first : {std::int64_t{1}, n / 3, n - 1}) {
        for (const std::int64_t wanted : {0, 2, 65, 700}) {
          const auto count = static_cast<std::size_t>(std::min(wanted, n - first));
          std::vector<std::int64_t> out(count + 1, -7);
          order.run({9, 9}, 2, first, std::span(out).first(count));
          ASSERT_TRUE(std::equal(out.begin(), out.end() - 1, whole.begin() + first));
          ASSERT_EQ(out.back(), -7);
        }
      }
    }
  }
}

TEST(WindowedShuffle, StaysInRangeUpToTheLargestSize) {
  for (int bits = 8; bits <= 62; ++bits) {
    for (const std::int64_t by : {-1, 0, 1}) {
      const std::int64_t n = (std::int64_t{1} << bits) + by;
      if (n > kMaxSamples) continue;
      for (const std::int64_t block : {std::int64_t{1}, std::int64_t{1000}, n / 2,
                                       n / 2 + 1, n - 1, n, kMaxSamples}) {
        for (const std::int64_t window : {std::int64_t{1}, std::int64_t{16}, n}) {
          const WindowedShuffle order(n, block, window);
          for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
            std::set<std::int64_t> seen;
            for (const std::int64_t first : {std::int64_t{0}, n / 2, n - 60}) {
              std::array<std::int64_t, 60> out;
              order.run({1, 2}, epoch, first, out);
              for (const std::int64_t index : out) {
                ASSERT_GE(index, 0) << n << ", " << block << ", " << window;
                ASSERT_LT(index, n) << n << ", " << block << ", " << window;
                seen.insert(index);
              }
            }
            ASSERT_EQ(seen.size(), 180u) << n << ", " << block << ", " << window;
          }
        }
      }
    }
  }
}

TEST(WindowedShuffle, EpochsSeedsAndBothSizesMatter) {
  const auto made = [](std::int64_t block, std::int64_t window, Seed seed,
                       std::uint32_t epoch) {
    return epoch_of(WindowedShuffle(1000, block, window), seed, epoch);
  };
  const std::set<std::vector<std::int64_t>> seen = {
      made(10, 4, {0, 0}, 0), made(10, 4, {1, 0}, 0), made(10, 4, {0, 1}, 0),
      made(10, 4, {0, 0}, 1), made(20, 4, {0, 0}, 0), made(10, 5, {0, 0}, 0)};
  EXPECT_EQ(seen.size(), 6u);
}

/// The deviation of the counts from uniformity, in standard deviations.
double deviation(const std::vector<double>& counts, double freedom) {
  double total = 0;
  for (const double count : counts) total += count;
  const double mean = total / static_cast<double>(counts.size());
  double statistic = 0;
  for (const double count : counts) statistic += (count - mean) * (count - mean) / mean;
  return std::fabs(statistic - freedom) / std::sqrt(2 * freedom);
}

TEST(WindowedShuffle, PositionsAndSamplesAreUniform) {
  // Sizes with a short block and several windows. Both forms of the block permutation
  // occur: with a table and without.
  const std::vector<std::array<std::int64_t, 3>> cases = {
      {47, 5, 3}, {40, 5, 3}, {300, 7, 4}, {300, 2, 5}, {150, 1, 1}};
  for (const auto& [n, block, window] : cases) {
    const WindowedShuffle order(n, block, window);
    std::vector<double> counts(static_cast<std::size_t>(n * n));
    for (std::uint32_t epoch = 0; epoch < 30 * n; ++epoch) {
      const auto made = epoch_of(order, {77, 3}, epoch);
      for (std::size_t i = 0; i < made.size(); ++i) {
        ++counts[i * made.size() + static_cast<std::size_t>(made[i])];
      }
    }
    // If the last block is shorter, positions near an end see it more often. Compare
    // only samples with the same probability.
    if (n % block == 0) {
      const auto freedom = static_cast<double>((n - 1) * (n - 1));
      EXPECT_LT(deviation(counts, freedom), 6) << n;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const auto begin = counts.begin() + static_cast<std::ptrdiff_t>(i) * n;
      const std::int64_t even = n / block * block;
      const std::vector<double> row(begin, begin + even);
      ASSERT_LT(deviation(row, static_cast<double>(even - 1)), 6) << n << ", " << i;
    }
  }
}

TEST(WindowedShuffle, NeighbouringWindowsHaveDifferentOrders) {
  // In another window or epoch, a block has its samples in another order.
  const WindowedShuffle order(64 * 64, 64, 1);
  std::set<std::vector<std::int64_t>> seen;
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    const auto made = epoch_of(order, {3, 3}, epoch);
    for (std::size_t window = 0; window < 64; ++window) {
      std::vector<std::int64_t> within;
      for (std::size_t i = 0; i < 64; ++i) {
        within.push_back(made[window * 64 + i] % 64);
      }
      EXPECT_TRUE(seen.insert(within).second) << window;
    }
  }
}

TEST(WindowedShuffle, RejectsImpossibleSizes) {
  const auto refusal = [](std::int64_t n, std::int64_t block, std::int64_t window) {
    try {
      WindowedShuffle(n, block, window);
    } catch (const ArgumentError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(10, 0, 2), "block_size must be at least 1, not 0");
  EXPECT_EQ(refusal(10, 2, -1), "window must be at least 1, not -1");
  EXPECT_EQ(refusal(0, 2, 2), "an order needs between 1 and 2^62 samples, not 0");
  EXPECT_NE(refusal(kMaxSamples + 1, 2, 2), "");
}

TEST(WindowedShuffle, DigestsDependOnEverythingThatDeterminesTheOrder) {
  const auto digest = [](const Order& order) {
    Digest result;
    order.add_to(result);
    return result.value();
  };
  const std::set<std::uint64_t> all = {
      digest(Shuffle(100)), digest(WindowedShuffle(100, 10, 2)),
      digest(WindowedShuffle(101, 10, 2)), digest(WindowedShuffle(100, 11, 2)),
      digest(WindowedShuffle(100, 10, 3))};
  EXPECT_EQ(all.size(), 5u);
  // A window of more blocks than exist is the same as a window of all blocks.
  EXPECT_EQ(digest(WindowedShuffle(100, 10, 10)), digest(WindowedShuffle(100, 10, 99)));
  EXPECT_EQ(epoch_of(WindowedShuffle(100, 10, 10), {}, 1),
            epoch_of(WindowedShuffle(100, 10, 99), {}, 1));
}

}  // namespace
}  // namespace millstream
