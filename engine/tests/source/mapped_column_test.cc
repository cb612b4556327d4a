#include "millstream/source/mapped_column.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "io/page_cache.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

TEST(MappedColumn, HintsARowThatIsNotCached) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kRow = std::int64_t{1} << 14;
  constexpr std::int64_t kMissing = 37;
  const TemporaryFolder folder;
  const auto path = folder.write("a.bin", std::string(kRows * kRow, 'x'));
  drop(path);
  const auto file = std::make_shared<const MappedFile>(File(path));
  const MappedColumn column({"x", DType::kUint8, Shape{kRow}},
                            {{file, 0, kRow, kRows}});
  for (std::int64_t row = 0; row < kRows; ++row) {
    if (row != kMissing) file->will_need(row * kRow, kRow);
  }
  for (std::int64_t row = 0; row < kRows; ++row) {
    ASSERT_TRUE(row == kMissing || soon_cached(*file, row * kRow)) << row;
  }
  if (file->cached(kMissing * kRow)) GTEST_SKIP() << "a disk of memory";
  std::vector<std::int64_t> all(kRows);
  std::iota(all.begin(), all.end(), 0);
  column.prepare(all);
  EXPECT_TRUE(soon_cached(*file, kMissing * kRow));
}

TEST(MappedColumn, StopsReadingLargeRowsWhenCancelled) {
  constexpr std::int64_t kRow = std::int64_t{1} << 20;
  const TemporaryFolder folder;
  const auto file = std::make_shared<const MappedFile>(
      File(folder.write("a.bin", std::string(2 * kRow, 'x'))));
  const MappedColumn column({"x", DType::kUint8, Shape{kRow}}, {{file, 0, kRow, 2}});
  Memory memory;
  Column to = {DType::kUint8, Shape{kRow}, memory.allocate(2 * kRow), kRow, nullptr};
  std::atomic<bool> cancelled = false;
  CallContext context;
  context.cancelled = &cancelled;
  column.read(std::vector<std::int64_t>{1, 0}, to, memory, context);
  EXPECT_EQ(to.row(1)[kRow - 1], std::byte{'x'});
  cancelled = true;
  EXPECT_THROW(column.read(std::vector<std::int64_t>{1, 0}, to, memory, context),
               Cancelled);
}

}  // namespace
}  // namespace millstream
