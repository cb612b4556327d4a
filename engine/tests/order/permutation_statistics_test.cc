// Seeds are fixed, so these either always pass or always fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "millstream/order/permutation.h"

namespace millstream {
namespace {

constexpr double kSigmas = 5;

std::vector<std::int64_t> shuffled(const Grid& grid, std::uint32_t epoch,
                                   Seed seed = {1234, 5}) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(grid.n));
  Permutation(grid, seed, epoch, Purpose::kShuffle).run(0, out);
  return out;
}

double chi_square(const std::vector<std::int64_t>& counts) {
  const auto total =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0L));
  const double expected = total / static_cast<double>(counts.size());
  double statistic = 0;
  for (const std::int64_t count : counts) {
    const double off = static_cast<double>(count) - expected;
    statistic += off * off / expected;
  }
  return statistic;
}

double sigmas(double statistic, double freedom) {
  return std::fabs(statistic - freedom) / std::sqrt(2 * freedom);
}

/// The deviation from uniformity of a table of pairs (x, y) in [0, n)^2 that `epochs`
/// permutations give.
class Table {
 public:
  explicit Table(std::int64_t bins) : bins_(bins), counts_(size()) {}

  void add(std::int64_t x, std::int64_t y) {
    ++counts_[static_cast<std::size_t>(x * bins_ + y)];
  }
  double statistic() const { return chi_square(counts_); }
  double freedom() const { return static_cast<double>((bins_ - 1) * (bins_ - 1)); }

 private:
  std::size_t size() const { return static_cast<std::size_t>(bins_ * bins_); }
  std::int64_t bins_;
  std::vector<std::int64_t> counts_;
};

TEST(PermutationStatistics, PositionsAndSamplesAreUniform) {
  for (const std::int64_t n : {2, 3, 5, 8, 50, 128, 129, 130, 144, 145, 257, 600}) {
    const Grid grid(n);
    Table table(n);
    for (std::uint32_t epoch = 0; epoch < 20 * n; ++epoch) {
      const auto order = shuffled(grid, epoch);
      for (std::int64_t i = 0; i < n; ++i) {
        table.add(i, order[static_cast<std::size_t>(i)]);
      }
    }
    // All rows and columns of the table have the same sum, which makes the statistic
    // too large by the factor n / (n - 1).
    const double corrected =
        table.statistic() * static_cast<double>(n - 1) / static_cast<double>(n);
    EXPECT_LT(sigmas(corrected, table.freedom()), kSigmas) << n;
  }
}

TEST(PermutationStatistics, RegionsAreUniform) {
  constexpr std::int64_t kBins = 32;
  for (const std::int64_t n : {4096, 65536, 32 * 2049}) {
    const Grid grid(n);
    double statistic = 0;
    double freedom = 0;
    for (std::uint32_t epoch = 0; epoch < 10; ++epoch) {
      Table table(kBins);
      const auto order = shuffled(grid, epoch);
      for (std::int64_t i = 0; i < n; ++i) {
        table.add(i * kBins / n, order[static_cast<std::size_t>(i)] * kBins / n);
      }
      statistic +=
          table.statistic() * static_cast<double>(n - 1) / static_cast<double>(n);
      freedom += table.freedom();
    }
    EXPECT_LT(sigmas(statistic, freedom), kSigmas) << n;
  }
}

TEST(PermutationStatistics, AllPermutationsOfSmallSizesAreEquallyLikely) {
  std::int64_t factorial = 1;
  for (std::int64_t n = 2; n <= 8; ++n) {
    factorial *= n;
    const Grid grid(n);
    std::vector<std::int64_t> counts(static_cast<std::size_t>(factorial));
    const std::int64_t draws = std::max<std::int64_t>(10 * factorial, 20'000);
    for (std::int64_t draw = 0; draw < draws; ++draw) {
      const auto order = shuffled(grid, static_cast<std::uint32_t>(draw));
      std::int64_t rank = 0;
      for (auto at = order.begin(); at != order.end(); ++at) {
        rank = rank * (order.end() - at) +
               std::count_if(at, order.end(), [&](auto other) { return other < *at; });
      }
      ++counts[static_cast<std::size_t>(rank)];
    }
    EXPECT_LT(sigmas(chi_square(counts), static_cast<double>(factorial - 1)), kSigmas)
        << n;
  }
}

TEST(PermutationStatistics, PairsAreUniform) {
  constexpr std::int64_t kSamples = 131;
  const Grid grid(kSamples);
  const std::int64_t columns = grid.columns;
  for (const std::int64_t other :
       {std::int64_t{1}, columns, columns + 1, kSamples - 1}) {
    std::vector<std::int64_t> counts(kSamples * (kSamples - 1));
    for (std::uint32_t epoch = 0; epoch < 400'000; ++epoch) {
      const Permutation order(grid, {77, 0}, epoch, Purpose::kShuffle);
      const std::int64_t a = order(0);
      const std::int64_t b = order(other);
      ++counts[static_cast<std::size_t>(a * (kSamples - 1) + b - (b > a ? 1 : 0))];
    }
    const auto freedom = static_cast<double>(counts.size() - 1);
    EXPECT_LT(sigmas(chi_square(counts), freedom), kSigmas) << other;
  }
}

TEST(PermutationStatistics, DifferencesOfNeighboursAreUniform) {
  constexpr std::int64_t kBins = 64;
  for (const std::int64_t n : {129, 1000, 65537}) {
    const Grid grid(n);
    for (const std::int64_t lag : {std::int64_t{1}, std::int64_t{grid.columns}}) {
      std::vector<std::int64_t> counts(kBins);
      std::vector<double> expected(kBins);
      for (std::int64_t d = 1; d < n; ++d) {
        expected[static_cast<std::size_t>(d * kBins / n)] += 1;
      }
      double pairs = 0;
      for (std::uint32_t epoch = 0; epoch < 1'000'000 / n; ++epoch) {
        const auto order = shuffled(grid, epoch);
        for (std::size_t i = static_cast<std::size_t>(lag); i < order.size(); ++i) {
          const std::int64_t gap =
              (order[i] - order[i - static_cast<std::size_t>(lag)] + n) % n;
          ++counts[static_cast<std::size_t>(gap * kBins / n)];
          ++pairs;
        }
      }
      double statistic = 0;
      for (std::size_t bin = 0; bin < kBins; ++bin) {
        const double mean = pairs * expected[bin] / static_cast<double>(n - 1);
        const double off = static_cast<double>(counts[bin]) - mean;
        statistic += off * off / mean;
      }
      EXPECT_LT(sigmas(statistic, kBins - 1), kSigmas) << n << ", lag " << lag;
    }
  }
}

/// Pearson's correlation of two lists of equal length.
double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const auto count = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / count;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / count;
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xy / std::sqrt(xx * yy);
}

std::vector<double> numbers(const std::vector<std::int64_t>& order) {
  return {order.begin(), order.end()};
}

TEST(PermutationStatistics, PositionsAtEveryLagAreUncorrelated) {
  for (const std::int64_t n : {1000, 60000, 65537}) {
    const Grid grid(n);
    const auto order = numbers(shuffled(grid, 3));
    for (const std::int64_t lag :
         {std::int64_t{1}, std::int64_t{2}, std::int64_t{64},
          std::int64_t{grid.columns}, std::int64_t{grid.columns} + 1}) {
      const std::vector<double> early(order.begin(), order.end() - lag);
      const std::vector<double> late(order.begin() + lag, order.end());
      const double limit = kSigmas / std::sqrt(static_cast<double>(n - lag));
      EXPECT_LT(std::fabs(correlation(early, late)), limit) << n << ", lag " << lag;
    }
  }
}

TEST(PermutationStatistics, NeighbouringEpochsAndSeedsAreUncorrelated) {
  for (const std::int64_t n : {100, 129, 1000, 65537}) {
    const Grid grid(n);
    const auto count = static_cast<std::uint32_t>(300'000 / n);
    const auto compare =
        [&](const std::function<std::vector<std::int64_t>(std::uint32_t)>& order_of) {
          double sum = 0;
          double equal = 0;
          auto before = order_of(0);
          for (std::uint32_t i = 1; i <= count; ++i) {
            const auto after = order_of(i);
            sum += correlation(numbers(before), numbers(after));
            for (std::size_t k = 0; k < after.size(); ++k)
              equal += before[k] == after[k];
            before = after;
          }
          const double spread = kSigmas * std::sqrt(static_cast<double>(count));
          EXPECT_LT(std::fabs(sum), spread / std::sqrt(static_cast<double>(n - 1)))
              << n;
          EXPECT_LT(std::fabs(equal - count), spread) << n;
        };
    compare([&](std::uint32_t i) { return shuffled(grid, i); });
    compare([&](std::uint32_t i) { return shuffled(grid, 0, {i, 0}); });
    compare([&](std::uint32_t i) { return shuffled(grid, 0, {0, i}); });
  }
}

TEST(PermutationStatistics, FixedPointsAndCyclesMatchRandomPermutations) {
  for (const std::int64_t n : {10, 128, 129, 500, 5000}) {
    const Grid grid(n);
    const std::int64_t orders = std::min<std::int64_t>(2000, 2'000'000 / n);
    double fixed = 0;
    double cycles = 0;
    for (std::int64_t epoch = 0; epoch < orders; ++epoch) {
      const auto order = shuffled(grid, static_cast<std::uint32_t>(epoch));
      std::vector<bool> seen(order.size());
      for (std::size_t i = 0; i < order.size(); ++i) {
        fixed += order[i] == static_cast<std::int64_t>(i);
        if (seen[i]) continue;
        ++cycles;
        for (std::size_t at = i; !seen[at]; at = static_cast<std::size_t>(order[at])) {
          seen[at] = true;
        }
      }
    }
    double mean = 0;
    double variance = 0;
    for (std::int64_t k = 1; k <= n; ++k) {
      const double inverse = 1 / static_cast<double>(k);
      mean += inverse;
      variance += inverse - inverse * inverse;
    }
    const auto count = static_cast<double>(orders);
    EXPECT_LT(std::fabs(fixed - count), kSigmas * std::sqrt(count)) << n;
    EXPECT_LT(std::fabs(cycles - mean * count), kSigmas * std::sqrt(variance * count))
        << n;
  }
}

}  // namespace
}  // namespace millstream
