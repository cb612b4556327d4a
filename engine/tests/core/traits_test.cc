#include "millstream/core/traits.h"

#include <gtest/gtest.h>

namespace millstream {
namespace {

TEST(Traits, DefaultsDescribeACopy) {
  EXPECT_TRUE(Traits{}.immediate());
  EXPECT_FALSE(Traits{.waits = true}.immediate());
  EXPECT_FALSE(Traits{.cheap = false}.immediate());
  EXPECT_TRUE(Traits{.may_fail = true}.immediate());
}

TEST(Traits, CombineTheCostsOfBoth) {
  const Traits disk = {.waits = true, .may_fail = true, .blocks = 8};
  const Traits decoding = {.cheap = false, .blocks = 2};
  const Traits function = {
      .waits = true, .cheap = false, .may_fail = true, .workers = 2};
  EXPECT_EQ(combined({}, {}), Traits{});
  EXPECT_EQ(combined(disk, {}), disk);
  EXPECT_EQ(combined({}, disk), disk);
  const Traits both = {.waits = true, .cheap = false, .may_fail = true, .blocks = 8};
  EXPECT_EQ(combined(disk, decoding), both);
  EXPECT_EQ(combined(decoding, disk), both);
  EXPECT_EQ(combined(function, function).workers, 4);
}

TEST(Traits, CombineTheRandomNumbersOfSources) {
  const Traits drawing = {.draws = true, .function_numbers = 1};
  EXPECT_EQ(combined(drawing, {}), drawing);
  EXPECT_EQ(combined({}, drawing), drawing);
  EXPECT_EQ(combined(drawing, drawing), drawing);  // both use the same number
}

}  // namespace
}  // namespace millstream
