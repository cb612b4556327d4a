#include "millstream/source/mapped_column.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "io/page_cache.h"
#include "millstream/source/columns.h"
#include "source/source_conformance.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

/// Two columns whose chunks alternate in each of some files, like the record batches of
/// Arrow files. Chunks have `rows[i]` rows in turn, and those of the second column one
/// more, so that the columns have other borders.
SourceCase chunked(std::string name, std::vector<std::int64_t> rows, int files) {
  constexpr std::int64_t kSize = 240;
  const std::vector<TrueField> truth = {counted({"x", DType::kFloat32, {5}}, kSize),
                                        counted({"y", DType::kInt16, {}}, kSize)};
  return {std::move(name), truth, [=](const TemporaryFolder& folder) {
            std::vector<std::string> contents(static_cast<std::size_t>(files));
            std::vector<std::vector<std::array<std::int64_t, 3>>> chunks(2);
            std::vector<std::int64_t> taken(2);
            for (std::size_t i = 0; taken[0] < kSize || taken[1] < kSize; ++i) {
              const std::size_t file = i * contents.size() / 100 % contents.size();
              for (std::size_t f = 0; f < 2; ++f) {
                const std::int64_t row = byte_size(truth[f].field);
                const std::int64_t count =
                    std::min(rows[i % rows.size()] + static_cast<std::int64_t>(f),
                             kSize - taken[f]);
                contents[file] += "gap";
                chunks[f].push_back({static_cast<std::int64_t>(file),
                                     static_cast<std::int64_t>(contents[file].size()),
                                     count});
                contents[file] +=
                    truth[f].bytes.substr(static_cast<std::size_t>(taken[f] * row),
                                          static_cast<std::size_t>(count * row));
                taken[f] += count;
              }
            }
            std::vector<std::shared_ptr<const MappedFile>> opened;
            for (const std::string& bytes : contents) {
              const auto path = folder.write(std::to_string(opened.size()), bytes);
              opened.push_back(std::make_shared<const MappedFile>(File(path)));
            }
            std::vector<MappedColumn> columns;
            for (std::size_t f = 0; f < 2; ++f) {
              std::vector<MappedArray> arrays;
              for (const auto& [file, offset, count] : chunks[f]) {
                arrays.push_back({opened[static_cast<std::size_t>(file)], offset,
                                  byte_size(truth[f].field), count});
              }
              columns.emplace_back(truth[f].field, std::move(arrays));
            }
            return std::make_shared<ColumnsSource>(std::move(columns));
          }};
}

INSTANTIATE_TEST_SUITE_P(Chunks, SourceConformance,
                         testing::Values(chunked("EqualChunks", {10}, 1),
                                         chunked("UnevenChunks", {1, 7, 0, 13}, 1),
                                         chunked("FirstChunkIsEmpty", {0, 4}, 1),
                                         chunked("TwoFiles", {3, 1}, 2)),
                         case_name);

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
