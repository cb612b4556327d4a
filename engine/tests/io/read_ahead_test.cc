#include "millstream/io/read_ahead.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "io/page_cache.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

constexpr std::int64_t kRow = std::int64_t{1} << 14;
constexpr std::int64_t kSize = std::int64_t{1} << 24;
constexpr std::int64_t kFar = kSize / 2;  // from what is asked for

class ReadAheadOffDisk : public testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.write("a.bin", std::string(kSize, 'x'));
    drop(path_);
    if (MappedFile(File(path_)).cached(0)) GTEST_SKIP() << "a disk of memory";
  }

  /// Asks for the rows in front of `kFar`, some at a time, when those before are there.
  static void ask_for_first_half(const MappedFile& file, ReadAhead& ahead) {
    constexpr std::int64_t kRows = 32;
    for (std::int64_t first = 0; first < kFar; first += kRows * kRow) {
      std::vector<FileRange> ranges;
      for (std::int64_t k = 0; k < kRows; k += 2) {  // every other one
        ranges.push_back({&file, first + k * kRow, kRow});
      }
      ahead.ask(ranges);
      ASSERT_TRUE(soon_cached(file, ranges.back().offset));
    }
  }

  /// How many rows are in memory of those that were not asked for.
  static int others_cached(const MappedFile& file) {
    int found = 0;
    for (std::int64_t at = kRow; at < kFar; at += 2 * kRow) {
      found += file.cached(at, kRow) ? 1 : 0;
    }
    return found;
  }

  TemporaryFolder folder_;
  std::filesystem::path path_;
};

TEST_F(ReadAheadOffDisk, BringsWhatIsAroundRowsWhereAllFitsIntoMemory) {
  const MappedFile file{File(path_)};
  file.in_any_order();
  ReadAhead ahead(kSize);
  ask_for_first_half(file, ahead);
  EXPECT_GT(others_cached(file), 0);
  EXPECT_FALSE(file.cached(kSize - kRow));
}

TEST_F(ReadAheadOffDisk, BringsRowsAloneWhereTheFilesAreLargerThanMemory) {
  const MappedFile file{File(path_)};
  file.in_any_order();
  ReadAhead ahead(std::numeric_limits<std::int64_t>::max());
  ask_for_first_half(file, ahead);
  EXPECT_EQ(others_cached(file), 0);
}

TEST_F(ReadAheadOffDisk, BringsNoMoreWhileTheDiskIsBehind) {
  const MappedFile file{File(path_)};
  file.in_any_order();
  ReadAhead ahead(kSize);
  std::vector<FileRange> rows = {{&file, 0, kRow}};
  ahead.ask(rows);
  ASSERT_TRUE(soon_cached(file, 0));
  drop(path_);  // as if it had not come
  ASSERT_FALSE(file.cached(0));
  rows[0].offset = kFar;
  rows.resize(256, rows[0]);
  ahead.ask(rows);
  ASSERT_TRUE(soon_cached(file, kFar));
  EXPECT_FALSE(file.cached(kFar + 16 * kRow));
}

TEST(ReadAhead, RestsForAWhile) {
  ReadAhead ahead(kSize);
  EXPECT_FALSE(ahead.rests());
  ahead.rest();
  int rested = 0;
  while (ahead.rests()) ++rested;
  EXPECT_GT(rested, 0);
  EXPECT_FALSE(ahead.rests());
}

TEST(ReadAhead, KnowsWhatMemoryThereIs) { EXPECT_GT(memory_for_files(), kSize); }

}  // namespace
}  // namespace millstream
