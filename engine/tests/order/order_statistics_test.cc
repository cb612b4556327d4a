// Seeds are fixed, so these either always pass or always fail.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "millstream/order/order.h"

namespace millstream {
namespace {

/// The deviation of the counts from the expected shares, in standard deviations. The
/// count of a share of 0 must be 0.
double deviation(const std::vector<std::int64_t>& counts,
                 const std::vector<double>& shares) {
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  const auto draws =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0L));
  double statistic = 0;
  double freedom = -1;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = draws * shares[i] / total;
    if (shares[i] == 0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    const double off = static_cast<double>(counts[i]) - expected;
    statistic += off * off / expected;
    ++freedom;
  }
  return freedom > 0 ? (statistic - freedom) / std::sqrt(2 * freedom) : 0;
}

std::vector<std::int64_t> counted(const Order& order, Seed seed) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(order.samples()));
  std::vector<std::int64_t> epoch(static_cast<std::size_t>(order.length()));
  order.run(seed, 0, 0, epoch);
  for (const std::int64_t index : epoch) {
    ++counts.at(static_cast<std::size_t>(index));
  }
  return counts;
}

TEST(ReplacementStatistics, DrawsUniformly) {
  for (const std::int64_t n : {1, 3, 100, 999}) {
    const Replacement order(n, 200'000);
    const std::vector<double> even(static_cast<std::size_t>(n), 1.0);
    EXPECT_LT(std::fabs(deviation(counted(order, {8, 0}), even)), 5) << n;
  }
}

TEST(WeightedStatistics, DrawsInProportionToTheWeights) {
  std::vector<double> steps(200);
  std::iota(steps.begin(), steps.end(), 0.0);
  const std::vector<std::vector<double>> cases = {
      {1}, {1, 1}, {1, 2, 3, 4}, {0, 5, 0, 1}, {1e-3, 1, 10}, {1e300, 3e300, 0}, steps};
  for (const auto& weights : cases) {
    const Weighted order(weights, 300'000);
    EXPECT_LT(std::fabs(deviation(counted(order, {21, 0}), weights)), 5)
        << weights.size();
  }
}

TEST(WeightedStatistics, TinyWeightsKeepTheirProbability) {
  const std::vector<double> weights = {0, 1e-310, 3e-310, 0};
  const Weighted order(weights, 100'000);
  EXPECT_LT(std::fabs(deviation(counted(order, {4, 0}), weights)), 5);
}

}  // namespace
}  // namespace millstream
