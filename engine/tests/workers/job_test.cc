#include "millstream/workers/job.h"

#include <gtest/gtest.h>

namespace millstream {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// The grain for 128 rows and 3 workers once a row is known to take so long.
std::int64_t grain_of(std::chrono::nanoseconds row) {
  Pace pace;
  pace.note(1, row);
  return pace.grain(128, 3);
}

TEST(PaceTest, SharesEvenlyWhereNothingIsKnown) {
  EXPECT_EQ(Pace().grain(128, 3), 43);
  EXPECT_EQ(Pace().grain(2, 3), 1);
  EXPECT_EQ(Pace().grain(0, 3), 1);
}

TEST(PaceTest, GivesWholeBatchesOfCheapRows) {
  EXPECT_EQ(grain_of(microseconds(1)), 128);
  EXPECT_EQ(grain_of(microseconds(7)), 128);
  EXPECT_EQ(grain_of(microseconds(10)), 43);
}

TEST(PaceTest, GivesAllWorkersAsManyParts) {
  EXPECT_EQ(grain_of(milliseconds(1)), 43);
  EXPECT_EQ(grain_of(milliseconds(2)), 15);  // three parts each
  EXPECT_EQ(grain_of(milliseconds(20)), 2);
}

TEST(PaceTest, GivesSlowRowsOneByOne) {
  EXPECT_EQ(grain_of(milliseconds(60)), 1);
  EXPECT_EQ(grain_of(std::chrono::hours(1)), 1);
}

TEST(PaceTest, GivesWholeBatchesWhereThereAreMoreOfThemThanWorkers) {
  Pace pace;
  pace.note(1, microseconds(100));
  EXPECT_EQ(pace.grain(128, 3, 3), 43);
  EXPECT_EQ(pace.grain(128, 3, 4), 128);
  EXPECT_EQ(pace.grain(512, 3, 4), 171);  // that would take too long
}

TEST(PaceTest, KnowsWhichPartsAreShort) {
  Pace pace;
  EXPECT_FALSE(pace.is_short(1));
  pace.note(1, milliseconds(1));
  EXPECT_TRUE(pace.is_short(7));
  EXPECT_FALSE(pace.is_short(8));
}

TEST(PaceTest, FollowsWhatRowsCost) {
  Pace pace;
  pace.note(8, milliseconds(8));
  EXPECT_EQ(pace.grain(128, 2), 32);
  for (int i = 0; i < 40; ++i) pace.note(128, microseconds(128));
  EXPECT_EQ(pace.grain(128, 2), 128);
}

}  // namespace
}  // namespace millstream
