#include "millstream/order/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
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

std::string refusal(const std::function<void()>& function) {
  try {
    function();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

std::uint64_t digest(const Order& order) {
  Digest result;
  order.add_to(result);
  return result.value();
}

void expect_parts_of_runs_equal_the_whole(const Order& order) {
  const Seed seed = {3, 4};
  const auto whole = epoch_of(order, seed, 2);
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}, whole.size() / 2}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, whole.size()}) {
      const std::size_t length = std::min(count, whole.size() - first);
      std::vector<std::int64_t> out(length);
      order.run(seed, 2, static_cast<std::int64_t>(first), out);
      EXPECT_TRUE(std::equal(out.begin(), out.end(),
                             whole.begin() + static_cast<std::ptrdiff_t>(first)));
    }
  }
}

TEST(Sequential, CountsUpInEveryEpoch) {
  const Sequential order(5);
  EXPECT_EQ(epoch_of(order, {1, 1}, 9), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  expect_parts_of_runs_equal_the_whole(order);
}

TEST(Sequential, RejectsImpossibleLengths) {
  EXPECT_EQ(refusal([] { Sequential(0); }),
            "an order needs between 1 and 2^62 positions, not 0");
  EXPECT_NE(refusal([] { Sequential(-3); }).find("-3"), std::string::npos);
  EXPECT_NE(refusal([] { Sequential(kMaxSamples + 1); }), "");
}

TEST(Shuffle, VisitsEverySampleOncePerEpoch) {
  for (const std::int64_t n : {1, 2, 128, 129, 1000}) {
    const Shuffle order(n);
    auto seen = epoch_of(order, {5, 0}, 1);
    std::ranges::sort(seen);
    EXPECT_EQ(seen, epoch_of(Sequential(n), {}, 0));
    expect_parts_of_runs_equal_the_whole(order);
  }
}

TEST(Shuffle, UsesThePermutationForShuffling) {
  const Shuffle order(1000);
  const Permutation permutation(Grid(1000), {5, 6}, 7, Purpose::kShuffle);
  const auto run = epoch_of(order, {5, 6}, 7);
  for (std::int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(run[static_cast<std::size_t>(i)], permutation(i));
  }
}

TEST(Replacement, PartsOfRunsEqualTheWhole) {
  expect_parts_of_runs_equal_the_whole(Replacement(10, 77));
}

TEST(Replacement, EpochsAndSeedsDiffer) {
  const Replacement order(1'000'000, 20);
  const std::set<std::vector<std::int64_t>> seen = {
      epoch_of(order, {0, 0}, 0), epoch_of(order, {0, 0}, 1),
      epoch_of(order, {1, 0}, 0), epoch_of(order, {0, 1}, 0)};
  EXPECT_EQ(seen.size(), 4u);
}

TEST(Replacement, StaysInRangeForTheLargestSize) {
  const Replacement order(kMaxSamples, 1000);
  for (const std::int64_t index : epoch_of(order, {1, 0}, 0)) {
    EXPECT_GE(index, 0);
    EXPECT_LT(index, kMaxSamples);
  }
}

TEST(Weighted, PartsOfRunsEqualTheWhole) {
  std::vector<double> steps(200);
  std::iota(steps.begin(), steps.end(), 0.0);
  expect_parts_of_runs_equal_the_whole(Weighted(steps, 55));
}

TEST(Weighted, NeverDrawsAWeightOfZero) {
  std::vector<double> weights(1000, 0.0);
  for (std::size_t i = 0; i < weights.size(); i += 7) {
    weights[i] = 0.1 * static_cast<double>(i + 1);
  }
  const Weighted order(weights, 100'000);
  for (const std::int64_t index : epoch_of(order, {1, 2}, 3)) {
    ASSERT_GT(weights[static_cast<std::size_t>(index)], 0);
  }
  for (std::uint32_t i = 0; i < weights.size(); ++i) {
    const auto cell = order.cells()[i];
    EXPECT_GT(weights[cell.other], 0);
    EXPECT_TRUE(weights[i] > 0 || cell.threshold == 0) << i;
  }
}

TEST(Weighted, ErrorsNameTheWeight) {
  const auto build = [](std::vector<double> weights, std::int64_t length) {
    return refusal([&] { Weighted(weights, length); });
  };
  EXPECT_EQ(build({1, -2}, 5), "weight 1 is -2; weights must be finite and at least 0");
  EXPECT_EQ(build({1, 1, HUGE_VAL}, 5),
            "weight 2 is inf; weights must be finite and at least 0");
  EXPECT_NE(build({std::numeric_limits<double>::quiet_NaN()}, 5), "");
  EXPECT_EQ(build({0, 0}, 5),
            "the weights add up to 0; the sum must be positive and finite");
  EXPECT_NE(build({1e308, 1e308}, 5), "");
  EXPECT_EQ(build({}, 5), "a weighted order needs between 1 and 2^31 weights, not 0");
  EXPECT_EQ(build({1}, 0),
            "a weighted order needs between 1 and 2^62 positions, not 0");
}

TEST(Listed, UsesOneListPerEpoch) {
  const Listed order(std::make_unique<Sequential>(3), {9, 8, 7, 1, 1, 0}, 10);
  EXPECT_EQ(order.length(), 3);
  EXPECT_EQ(order.samples(), 10);
  EXPECT_EQ(epoch_of(order, {}, 0), (std::vector<std::int64_t>{9, 8, 7}));
  EXPECT_EQ(epoch_of(order, {}, 1), (std::vector<std::int64_t>{1, 1, 0}));
  EXPECT_EQ(epoch_of(order, {}, 2), epoch_of(order, {}, 0));
  expect_parts_of_runs_equal_the_whole(order);
}

TEST(Listed, FollowsTheInnerOrder) {
  std::vector<std::int64_t> list(500);
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = static_cast<std::int64_t>(2 * i);
  }
  const Listed order(std::make_unique<Shuffle>(500), list, 1000);
  const auto inner = epoch_of(Shuffle(500), {2, 3}, 4);
  const auto run = epoch_of(order, {2, 3}, 4);
  for (std::size_t i = 0; i < run.size(); ++i) EXPECT_EQ(run[i], 2 * inner[i]);
}

TEST(Listed, ErrorsNameTheEntry) {
  const auto build = [](std::vector<std::int64_t> list) {
    return refusal([&] { Listed(std::make_unique<Sequential>(2), list, 10); });
  };
  EXPECT_EQ(build({0, 10}),
            "entry 1 of the listed order is 10, which is not a sample in [0, 10)");
  EXPECT_EQ(build({-1, 1}),
            "entry 0 of the listed order is -1, which is not a sample in [0, 10)");
  EXPECT_EQ(
      build({1, 2, 3}),
      "a listed order needs a multiple of 2 entries, one list per epoch; found 3");
  EXPECT_NE(build({}), "");
}

std::vector<std::int64_t> samples_of(const SplitRange& range) {
  const SplitOrder order(std::make_unique<Shuffle>(range.length), range);
  EXPECT_EQ(order.length(), range.length);
  EXPECT_EQ(order.samples(), range.n);
  expect_parts_of_runs_equal_the_whole(order);
  auto first = epoch_of(order, {1, 0}, 0);
  auto second = epoch_of(order, {2, 0}, 5);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first, second) << "a split has the same samples in every epoch";
  return first;
}

void expect_cover(std::vector<std::int64_t> a, const std::vector<std::int64_t>& b,
                  std::int64_t n) {
  a.insert(a.end(), b.begin(), b.end());
  std::ranges::sort(a);
  EXPECT_EQ(a, epoch_of(Sequential(n), {}, 0));
}

TEST(SplitOrder, RangesOfASplitAreDisjointAndComplete) {
  for (const bool shuffled : {false, true}) {
    for (const std::int64_t n : {2, 10, 129, 1000}) {
      for (const std::int64_t cut : {std::int64_t{1}, n / 3 + 1, n - 1}) {
        const SplitRange train = {n, 0, cut, 0, 0, shuffled, {7, 8}};
        const SplitRange test = {n, cut, n - cut, 0, 0, shuffled, {7, 8}};
        expect_cover(samples_of(train), samples_of(test), n);
      }
    }
  }
}

TEST(SplitOrder, FoldsSkipTheirValidationSamples) {
  for (const bool shuffled : {false, true}) {
    constexpr std::int64_t kSamples = 103;
    std::vector<std::int64_t> held;
    for (std::int64_t fold = 0; fold < 5; ++fold) {
      const std::int64_t from = kSamples * fold / 5;
      const std::int64_t count = kSamples * (fold + 1) / 5 - from;
      const SplitRange validation = {kSamples, from, count, 0, 0, shuffled, {9, 0}};
      const SplitRange train = {kSamples, 0,     kSamples - count, from, count,
                                shuffled, {9, 0}};
      const auto out = samples_of(validation);
      expect_cover(samples_of(train), out, kSamples);
      held.insert(held.end(), out.begin(), out.end());
    }
    expect_cover(held, {}, kSamples);
  }
}

TEST(SplitOrder, WithoutShuffleSamplesAreConsecutive) {
  EXPECT_EQ(samples_of({10, 3, 4, 0, 0, false, {}}),
            epoch_of(Listed(std::make_unique<Sequential>(4), {3, 4, 5, 6}, 10), {}, 0));
}

TEST(SplitOrder, SplitsOfOtherSeedsDiffer) {
  const SplitRange range = {1000, 0, 500, 0, 0, true, {1, 0}};
  SplitRange other = range;
  other.seed = {0, 1};
  EXPECT_NE(samples_of(range), samples_of(other));
}

TEST(SplitOrder, RejectsInvalidArguments) {
  const auto build = [](const SplitRange& range, std::int64_t inner) {
    return refusal([&] { SplitOrder(std::make_unique<Sequential>(inner), range); });
  };
  EXPECT_EQ(build({10, 8, 3, 0, 0, false, {}}, 3),
            "a split range of 3 samples from 8 on does not fit 10 samples");
  EXPECT_NE(build({10, -1, 3, 0, 0, false, {}}, 3), "");
  EXPECT_NE(build({10, 0, 8, 2, 3, false, {}}, 8), "");
  EXPECT_NE(build({10, 0, 3, 0, -1, false, {}}, 3), "");
  EXPECT_NE(build({10, 0, 3, 0, 0, false, {}}, 4), "");
  EXPECT_NE(build({0, 0, 1, 0, 0, false, {}}, 1), "");
  EXPECT_NE(
      build({10, std::numeric_limits<std::int64_t>::max(), 3, 0, 0, false, {}}, 3), "");
}

TEST(Order, DifferentOrdersHaveDifferentDigests) {
  const std::vector<double> weights = {1, 2};
  const std::vector<double> others = {1, 3};
  const auto range = [](Seed seed, bool shuffled) {
    return digest(SplitOrder(std::make_unique<Sequential>(2),
                             SplitRange{4, 0, 2, 0, 0, shuffled, seed}));
  };
  const std::vector<std::uint64_t> all = {
      digest(Sequential(2)),
      digest(Sequential(3)),
      digest(Shuffle(2)),
      digest(Replacement(2, 2)),
      digest(Replacement(2, 3)),
      digest(Weighted(weights, 2)),
      digest(Weighted(others, 2)),
      digest(Listed(std::make_unique<Sequential>(2), {0, 1}, 2)),
      digest(Listed(std::make_unique<Sequential>(2), {1, 0}, 2)),
      digest(Listed(std::make_unique<Shuffle>(2), {0, 1}, 2)),
      range({0, 0}, false),
      range({0, 0}, true),
      range({1, 0}, true),
      range({0, 1}, true)};
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
  EXPECT_EQ(digest(Shuffle(2)), digest(Shuffle(2)));
}

}  // namespace
}  // namespace millstream
