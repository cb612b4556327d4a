#include "millstream/order/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/order/draw.h"
#include "millstream/order/windowed.h"

namespace millstream {
namespace {

using Indices = std::vector<std::int64_t>;
using Components = std::vector<Mixture::Component>;

std::shared_ptr<const Order> shuffle(std::int64_t n) {
  return std::make_shared<Shuffle>(n);
}

std::shared_ptr<const Order> sequential(std::int64_t n) {
  return std::make_shared<Sequential>(n);
}

Indices epoch_of(const Order& order, Seed seed, std::uint32_t epoch) {
  Indices out(static_cast<std::size_t>(order.length()));
  order.run(seed, epoch, 0, out);
  return out;
}

Indices epochs_of(const Order& order, Seed seed, std::uint32_t epochs) {
  Indices all;
  for (std::uint32_t epoch = 0; epoch < epochs; ++epoch) {
    const Indices one = epoch_of(order, seed, epoch);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

/// Components with these sizes and weights.
Mixture sized(const Indices& sizes, const Indices& weights, std::int64_t length) {
  Components components;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    components.push_back({shuffle(sizes[i]), weights[i]});
  }
  return Mixture(components, length);
}

/// The component of each of the first `count` positions. Each component has one sample.
Indices turns(const Indices& weights, std::int64_t count) {
  return epoch_of(sized(Indices(weights.size(), 1), weights, count), {}, 0);
}

/// The largest deviation from the expected share in any prefix of `count` positions.
double worst(const Indices& weights, std::int64_t count) {
  const auto total =
      static_cast<double>(std::accumulate(weights.begin(), weights.end(), 0L));
  std::vector<double> owed(weights.size());
  double most = 0;
  for (const std::int64_t turn : turns(weights, count)) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      owed[i] += static_cast<double>(weights[i]) / total;
      if (static_cast<std::int64_t>(i) == turn) owed[i] -= 1;
      most = std::max(most, std::fabs(owed[i]));
    }
  }
  return most;
}

TEST(Mixture, VisitsComponentsByWeight) {
  EXPECT_EQ(turns({1, 1}, 6), (Indices{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(turns({3, 1}, 8), (Indices{0, 1, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(turns({0, 1, 0}, 3), (Indices{1, 1, 1}));
  EXPECT_EQ(turns({5}, 3), (Indices{0, 0, 0}));
}

TEST(Mixture, PrefixesOfTwoComponentsAreWithinAHalf) {
  for (std::int64_t a = 1; a <= 20; ++a) {
    for (std::int64_t b = 1; b <= 20; ++b) {
      ASSERT_LE(worst({a, b}, 3 * (a + b)), 0.5 + 1e-9) << a << ", " << b;
    }
  }
  EXPECT_LE(worst({1, 999'999}, 2'000'000), 0.5 + 1e-6);
}

TEST(Mixture, PrefixesAreWithinTwo) {
  const std::vector<Indices> cases = {{1, 1, 1},
                                      {1, 2, 3, 4, 5, 6, 7},
                                      {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
                                      {1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144},
                                      {1000, 1, 1, 1, 1, 1, 1, 1},
                                      {600, 300, 99, 1},
                                      Indices(64, 1),
                                      Indices(100, 7),
                                      {0, 3, 0, 5, 2},
                                      {999'983, 3, 14'142}};
  for (const Indices& weights : cases) EXPECT_LT(worst(weights, 20'000), 2);
  for (std::uint32_t draws = 0; draws < 200; ++draws) {
    Indices weights;
    for (std::uint32_t i = 0; i < 2 + draws % 12; ++i) {
      const auto words = draw({draws, 0}, 0, i, Purpose::kReplacement);
      weights.push_back(
          1 + below(1 + (std::int64_t{1} << (words[2] % 16)), words[0], words[1]));
    }
    ASSERT_LT(worst(weights, 3000), 2) << draws;
  }
}

TEST(Mixture, EveryPeriodIsExact) {
  const Indices weights = {7, 2, 1, 12};
  const Indices made = turns(weights, 22 * 50);
  for (std::size_t from = 0; from + 22 <= made.size(); from += 22) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const auto begin = made.begin() + static_cast<std::ptrdiff_t>(from);
      EXPECT_EQ(std::count(begin, begin + 22, static_cast<std::int64_t>(i)),
                weights[i]);
    }
  }
}

TEST(Mixture, ComponentsHaveTheirOwnEpochs) {
  const Seed seed = {11, 12};
  const Indices sizes = {10, 150, 7};
  for (const std::int64_t length : {1, 5, 100, 167}) {
    const Mixture order = sized(sizes, {5, 3, 2}, length);
    std::vector<Indices> visited(sizes.size());
    for (const std::int64_t index :
         epochs_of(order, seed, static_cast<std::uint32_t>(2000 / length))) {
      const std::size_t its = index < 10 ? 0 : index < 160 ? 1 : 2;
      visited[its].push_back(index - Indices{0, 10, 160}[its]);
    }
    std::int64_t number = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto words = draw(seed, 0, number++, Purpose::kMixture);
      const Indices expected = epochs_of(Shuffle(sizes[i]), {words[0], words[1]}, 200);
      ASSERT_GT(visited[i].size(), 200u);
      EXPECT_TRUE(std::equal(visited[i].begin(), visited[i].end(), expected.begin()))
          << "component " << i << ", length " << length;
    }
  }
}

TEST(Mixture, LengthOnlyDividesTheSequence) {
  const Seed seed = {1, 2};
  const Indices whole = epoch_of(sized({9, 40}, {2, 3}, 5040), seed, 0);
  for (const std::int64_t length : {1, 7, 16, 48, 63, 5040}) {
    const auto epochs = static_cast<std::uint32_t>(5040 / length);
    EXPECT_EQ(epochs_of(sized({9, 40}, {2, 3}, length), seed, epochs), whole);
  }
}

TEST(Mixture, WeightsEqualToSizesVisitEverySampleOncePerEpoch) {
  const Indices sizes = {60, 35, 205, 1};
  const Mixture order = sized(sizes, sizes, 301);
  Indices all(301);
  std::iota(all.begin(), all.end(), 0);
  for (std::uint32_t epoch = 0; epoch < 5; ++epoch) {
    Indices made = epoch_of(order, {3, 1}, epoch);
    std::ranges::sort(made);
    EXPECT_EQ(made, all);
  }
}

TEST(Mixture, RunsEqualSinglePositions) {
  const Components components = {
      {shuffle(5), 3},
      {std::make_shared<Replacement>(20, 7), 2},
      {std::make_shared<WindowedShuffle>(1000, 16, 4), 90},
      {std::make_shared<Mixture>(Components{{shuffle(3), 1}, {sequential(4), 2}}, 5),
       5}};
  const Mixture order(components, 1500);
  const Indices whole = epoch_of(order, {8, 8}, 3);
  for (std::int64_t i = 0; i < order.length(); ++i) {
    std::int64_t single = -1;
    order.run({8, 8}, 3, i, std::span(&single, 1));
    ASSERT_EQ(single, whole[static_cast<std::size_t>(i)]) << i;
  }
  for (const std::size_t first : {1u, 255u, 256u, 700u}) {
    for (const std::size_t count : {0u, 2u, 256u, 257u, 600u}) {
      Indices out(count + 1, -7);
      order.run({8, 8}, 3, static_cast<std::int64_t>(first),
                std::span(out).first(count));
      EXPECT_TRUE(std::equal(out.begin(), out.end() - 1,
                             whole.begin() + static_cast<std::ptrdiff_t>(first)));
      EXPECT_EQ(out.back(), -7);
    }
  }
}

TEST(Mixture, ComponentsOfEqualSizeHaveDifferentOrders) {
  const Mixture order = sized({1000, 1000}, {1, 1}, 2000);
  Indices first;
  Indices second;
  for (const std::int64_t index : epoch_of(order, {4, 4}, 0)) {
    (index < 1000 ? first : second).push_back(index % 1000);
  }
  EXPECT_NE(first, second);
  int equal = 0;
  for (std::size_t i = 0; i < 1000; ++i) equal += first[i] == second[i] ? 1 : 0;
  EXPECT_LT(equal, 10);
}

TEST(Mixture, SeedsChangeSamplesButNotComponents) {
  const Mixture order = sized({100, 100}, {7, 3}, 500);
  const Indices one = epoch_of(order, {1, 0}, 0);
  const Indices other = epoch_of(order, {0, 1}, 0);
  EXPECT_NE(one, other);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i] / 100, other[i] / 100);
  }
}

TEST(Mixture, TheLargestOrdersDoNotOverflow) {
  const Components components = {{sequential(kMaxSamples / 2), Mixture::kMaxWeight - 1},
                                 {shuffle(kMaxSamples / 2 - 3), 0},
                                 {sequential(3), 1}};
  const Mixture order(components, kMaxSamples);
  EXPECT_EQ(order.samples(), kMaxSamples);
  for (const std::uint32_t epoch : {0u, 1u, 0xFFFFFFFFu}) {
    for (const std::int64_t first :
         {std::int64_t{0}, kMaxSamples / 2, kMaxSamples - 300}) {
      std::array<std::int64_t, 300> out;
      order.run({1, 2}, epoch, first, out);
      for (const std::int64_t index : out) {
        ASSERT_GE(index, 0);
        ASSERT_LT(index, kMaxSamples);
      }
    }
  }
  // The last epoch, compared with the same computation in 128-bit arithmetic.
  __extension__ using Wide = unsigned __int128;
  std::int64_t found = -1;
  order.run({1, 2}, 0xFFFFFFFF, 12345, std::span(&found, 1));
  const Wide at = static_cast<Wide>(0xFFFFFFFFu) * (std::uint64_t{1} << 62) + 12345;
  const auto period = static_cast<std::uint64_t>(Mixture::kMaxWeight);
  const auto rest = static_cast<std::uint64_t>(at % period);
  const Wide visits = at / period * (period - 1) + rest - (rest > period / 2 ? 1 : 0);
  EXPECT_EQ(found, static_cast<std::int64_t>(visits % (std::uint64_t{1} << 61)));
}

TEST(Mixture, KeepsItsGoldenValues) {
  const Components components = {
      {shuffle(1000), 7}, {sequential(50), 2}, {shuffle(60), 1}};
  const Mixture order(components, 1110);
  const auto made = [&](Seed seed, std::uint32_t epoch, std::int64_t first) {
    Indices out(10);
    order.run(seed, epoch, first, out);
    return out;
  };
  EXPECT_EQ(made({0, 0}, 0, 0),
            (Indices{747, 1000, 574, 123, 1109, 866, 465, 631, 1001, 611}));
  EXPECT_EQ(made({7, 9}, 1, 500),
            (Indices{985, 1022, 443, 952, 1106, 478, 341, 583, 1023, 891}));
  EXPECT_EQ(made({3735928559u, 305419896u}, 4294967295u, 1100),
            (Indices{555, 1010, 100, 168, 1099, 811, 365, 579, 1011, 315}));
}

TEST(Mixture, IsTheSameFromAnyThread) {
  const Mixture order = sized({50, 500}, {1, 4}, 3000);
  const Indices expected = epoch_of(order, {1, 1}, 2);
  std::vector<Indices> made(4);
  {
    std::vector<std::jthread> threads;
    for (Indices& out : made) {
      threads.emplace_back([&] { out = epoch_of(order, {1, 1}, 2); });
    }
  }
  for (const Indices& out : made) EXPECT_EQ(out, expected);
}

std::string refusal(const Components& components, std::int64_t length) {
  try {
    Mixture mixture(components, length);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

TEST(Mixture, RejectsInvalidArguments) {
  EXPECT_EQ(refusal({{shuffle(2), 1}, {shuffle(2), -4}}, 5),
            "the weight of component 1 is -4; weights must be at least 0 and add up to "
            "at most 2147483647");
  EXPECT_NE(refusal({{shuffle(2), Mixture::kMaxWeight}, {shuffle(2), 1}}, 5), "");
  EXPECT_EQ(refusal({{shuffle(2), 0}}, 5),
            "a mixture needs a component whose weight is above 0; found none among 1");
  EXPECT_NE(refusal({}, 5), "");
  EXPECT_EQ(refusal({{shuffle(2), 1}}, 0),
            "a mixture needs between 1 and 2^62 positions, not 0");
  EXPECT_EQ(refusal({{shuffle(2), 1}, {nullptr, 1}}, 5),
            "component 1 of a mixture has no order");
  EXPECT_EQ(refusal({{shuffle(kMaxSamples), 1}, {shuffle(1), 1}}, 5),
            "a mixture may have at most 2^62 samples; component 1 exceeds that");
}

TEST(Mixture, DigestsDependOnEverythingThatDeterminesTheOrder) {
  const auto digest = [](const Components& components, std::int64_t length) {
    Digest result;
    Mixture(components, length).add_to(result);
    return result.value();
  };
  const std::set<std::uint64_t> all = {digest({{shuffle(5), 1}, {shuffle(6), 1}}, 9),
                                       digest({{shuffle(5), 1}, {shuffle(6), 1}}, 8),
                                       digest({{shuffle(5), 2}, {shuffle(6), 1}}, 9),
                                       digest({{shuffle(6), 1}, {shuffle(5), 1}}, 9),
                                       digest({{sequential(5), 1}, {shuffle(6), 1}}, 9),
                                       digest({{shuffle(11), 1}}, 9)};
  EXPECT_EQ(all.size(), 6u);
}

}  // namespace
}  // namespace millstream
