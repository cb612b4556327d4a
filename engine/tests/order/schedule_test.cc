#include "millstream/order/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {
namespace {

using Batch = std::vector<std::int64_t>;

constexpr Seed kSeed = {17, 4};

Batch batch(const Schedule& schedule, std::uint32_t epoch, std::int64_t step) {
  Batch out(static_cast<std::size_t>(schedule.batch_size()));
  schedule.run({kSeed, epoch, step}, 0, out);
  return out;
}

std::vector<std::int64_t> whole_epoch(const Order& order, std::uint32_t epoch) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(order.length()));
  order.run(kSeed, epoch, 0, out);
  return out;
}

/// The batches of `epochs` epochs, one list per epoch, computed by a simple loop.
std::vector<std::vector<Batch>> plainly(const Order& order, std::int64_t size,
                                        Remainder remainder, std::uint32_t epochs) {
  const std::int64_t n = order.length();
  std::vector<std::vector<Batch>> result;
  if (remainder == Remainder::kWrap) {
    const std::int64_t steps = (n + size - 1) / size;
    std::vector<std::int64_t> stream;
    for (std::uint32_t e = 0;
         static_cast<std::int64_t>(stream.size()) < epochs * steps * size; ++e) {
      for (const std::int64_t index : whole_epoch(order, e)) stream.push_back(index);
    }
    auto at = stream.begin();
    for (std::uint32_t e = 0; e < epochs; ++e) {
      auto& batches = result.emplace_back();
      for (std::int64_t s = 0; s < steps; ++s, at += size) {
        batches.emplace_back(at, at + size);
      }
    }
    return result;
  }
  for (std::uint32_t e = 0; e < epochs; ++e) {
    auto& batches = result.emplace_back();
    Batch open;
    for (const std::int64_t index : whole_epoch(order, e)) {
      open.push_back(index);
      if (static_cast<std::int64_t>(open.size()) < size) continue;
      batches.push_back(open);
      open.clear();
    }
    if (!open.empty() && remainder == Remainder::kPad) {
      open.resize(static_cast<std::size_t>(size), -1);
      batches.push_back(open);
    }
  }
  return result;
}

std::string refusal(const std::function<void()>& function) {
  try {
    function();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

template <typename Order>
void expect_plain(std::int64_t n, std::int64_t size, Remainder remainder) {
  SCOPED_TRACE(text("n ", n, ", batch size ", size, ", remainder ",
                    static_cast<int>(remainder)));
  const Schedule schedule(std::make_unique<Order>(n), size, remainder);
  const auto expected = plainly(Order(n), size, remainder, 3);
  ASSERT_EQ(schedule.steps(), static_cast<std::int64_t>(expected[0].size()));
  Position position = {kSeed, 0, 0};
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t step = 0; step < schedule.steps(); ++step) {
      const Batch made = batch(schedule, epoch, step);
      ASSERT_EQ(made, expected[epoch][static_cast<std::size_t>(step)]);
      ASSERT_EQ(position, (Position{kSeed, epoch, step}));
      const auto padding = std::ranges::count(made, -1);
      ASSERT_EQ(schedule.valid_rows(position), size - padding);
      position = schedule.next(position);
    }
  }
  ASSERT_EQ(position, (Position{kSeed, 3, 0}));
}

TEST(Schedule, MatchesTheReference) {
  for (const std::int64_t n : {1, 2, 3, 5, 7, 8, 31, 128, 129, 200}) {
    for (const std::int64_t size : {1, 2, 3, 4, 7, 8, 64, 129, 500}) {
      expect_plain<Sequential>(n, size, Remainder::kPad);
      expect_plain<Shuffle>(n, size, Remainder::kPad);
      expect_plain<Sequential>(n, size, Remainder::kWrap);
      expect_plain<Shuffle>(n, size, Remainder::kWrap);
      if (n >= size) expect_plain<Shuffle>(n, size, Remainder::kDrop);
    }
  }
}

TEST(Schedule, WrapContinuesWithTheNextEpoch) {
  const Schedule schedule(std::make_unique<Sequential>(5), 2, Remainder::kWrap);
  EXPECT_EQ(batch(schedule, 0, 0), (Batch{0, 1}));
  EXPECT_EQ(batch(schedule, 0, 1), (Batch{2, 3}));
  EXPECT_EQ(batch(schedule, 0, 2), (Batch{4, 0}));
  EXPECT_EQ(batch(schedule, 1, 0), (Batch{1, 2}));
  EXPECT_EQ(batch(schedule, 1, 1), (Batch{3, 4}));
  EXPECT_EQ(batch(schedule, 1, 2), (Batch{0, 1}));
}

TEST(Schedule, PadFillsTheLastBatchWithPadding) {
  const Schedule schedule(std::make_unique<Sequential>(5), 3, Remainder::kPad);
  EXPECT_EQ(batch(schedule, 0, 1), (Batch{3, 4, -1}));
  EXPECT_EQ(schedule.valid_rows({kSeed, 0, 1}), 2);
}

TEST(Schedule, DropOmitsTheRemainder) {
  const Schedule schedule(std::make_unique<Sequential>(5), 2, Remainder::kDrop);
  EXPECT_EQ(schedule.steps(), 2);
  EXPECT_EQ(batch(schedule, 0, 1), (Batch{2, 3}));
  EXPECT_EQ(schedule.valid_rows({kSeed, 0, 1}), 2);
}

TEST(Schedule, PartsOfABatchEqualTheWhole) {
  for (const Remainder remainder : {Remainder::kPad, Remainder::kWrap}) {
    for (const std::int64_t n : {3, 10, 150}) {
      const Schedule schedule(std::make_unique<Shuffle>(n), 16, remainder);
      for (std::int64_t step = 0; step < schedule.steps(); ++step) {
        const Batch whole = batch(schedule, 1, step);
        for (std::int64_t first = 0; first <= 16; ++first) {
          for (std::int64_t end = first; end <= 16; ++end) {
            Batch part(static_cast<std::size_t>(end - first));
            schedule.run({kSeed, 1, step}, first, part);
            ASSERT_EQ(part, Batch(whole.begin() + first, whole.begin() + end));
          }
        }
      }
    }
  }
}

TEST(Schedule, EpochsMatchTheSamples) {
  const Schedule wrapping(std::make_unique<Sequential>(3), 4, Remainder::kWrap);
  std::vector<std::uint32_t> epochs(8);
  wrapping.epochs({kSeed, 1, 0}, 0, epochs);
  EXPECT_EQ(epochs, (std::vector<std::uint32_t>{1, 1, 2, 2, 2, 3, 3, 3}));
  for (std::int64_t first = 0; first < 8; ++first) {
    std::vector<std::uint32_t> part(1);
    wrapping.epochs({kSeed, 1, 0}, first, part);
    EXPECT_EQ(part[0], epochs[static_cast<std::size_t>(first)]);
  }
  const Schedule padded(std::make_unique<Sequential>(3), 4, Remainder::kPad);
  padded.epochs({kSeed, 6, 0}, 0, epochs);
  EXPECT_EQ(epochs, std::vector<std::uint32_t>(8, 6));
}

TEST(Schedule, NextIsCanonicalAndKeepsTheSeed) {
  const Schedule schedule(std::make_unique<Sequential>(10), 4, Remainder::kPad);
  EXPECT_EQ(schedule.next({kSeed, 0, 0}), (Position{kSeed, 0, 1}));
  EXPECT_EQ(schedule.next({kSeed, 0, 2}), (Position{kSeed, 1, 0}));
  EXPECT_EQ(schedule.next({kSeed, 6, 99}), (Position{kSeed, 7, 0}));
}

TEST(Schedule, EpochsWrapAroundAfterTheLargest) {
  const Schedule schedule(std::make_unique<Sequential>(1), 1, Remainder::kPad);
  EXPECT_EQ(schedule.next({kSeed, 0xFFFFFFFF, 0}), (Position{kSeed, 0, 0}));
}

TEST(Schedule, TheLargestOrdersDoNotOverflow) {
  constexpr std::int64_t kSize = std::int64_t{1} << 31;
  for (const Remainder remainder : {Remainder::kPad, Remainder::kWrap}) {
    const Schedule schedule(std::make_unique<Sequential>(kMaxSamples - 1), kSize,
                            remainder);
    EXPECT_EQ(schedule.steps(), kMaxSamples / kSize);
    Batch end(2);
    schedule.run({kSeed, 0, schedule.steps() - 1}, kSize - 2, end);
    const bool wraps = remainder == Remainder::kWrap;
    EXPECT_EQ(end, (Batch{kMaxSamples - 2, wraps ? 0 : -1}));
    schedule.run({kSeed, 0xFFFFFFFF, schedule.steps() - 1}, 0, end);
    for (const std::int64_t index : end) {
      EXPECT_GE(index, 0);
      EXPECT_LT(index, kMaxSamples - 1);
    }
  }
}

TEST(Schedule, RejectsInvalidBatchSizes) {
  const auto build = [](std::int64_t n, std::int64_t size, Remainder remainder) {
    return refusal([=] { Schedule(std::make_unique<Sequential>(n), size, remainder); });
  };
  EXPECT_EQ(build(5, 0, Remainder::kPad),
            "batch_size must be between 1 and 2^31, not 0");
  EXPECT_EQ(build(5, -2, Remainder::kWrap),
            "batch_size must be between 1 and 2^31, not -2");
  EXPECT_NE(build(5, (std::int64_t{1} << 31) + 1, Remainder::kPad), "");
  EXPECT_EQ(build(5, 8, Remainder::kDrop),
            "drop_last leaves no batch: batch_size is 8, but there are only 5 samples");
  EXPECT_EQ(build(8, 8, Remainder::kDrop), "");
}

TEST(Schedule, DifferentSchedulesHaveDifferentDigests) {
  const auto digest = [](std::int64_t n, std::int64_t size, Remainder remainder) {
    Digest result;
    Schedule(std::make_unique<Shuffle>(n), size, remainder).add_to(result);
    return result.value();
  };
  EXPECT_EQ(digest(8, 2, Remainder::kPad), digest(8, 2, Remainder::kPad));
  EXPECT_NE(digest(8, 2, Remainder::kPad), digest(8, 2, Remainder::kWrap));
  EXPECT_NE(digest(8, 2, Remainder::kPad), digest(8, 4, Remainder::kPad));
  EXPECT_NE(digest(8, 2, Remainder::kPad), digest(9, 2, Remainder::kPad));
}

TEST(Remainder, HasThreeNames) {
  EXPECT_EQ(remainder_named("pad"), Remainder::kPad);
  EXPECT_EQ(remainder_named("drop"), Remainder::kDrop);
  EXPECT_EQ(remainder_named("wrap"), Remainder::kWrap);
  EXPECT_EQ(refusal([] { remainder_named("partial"); }),
            "remainder must be 'pad', 'drop' or 'wrap', not 'partial'");
}

}  // namespace
}  // namespace millstream
