#include "millstream/workers/chunk_size.h"

#include <gtest/gtest.h>

namespace millstream {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// The rows per chunk for 128 rows and 3 workers when a row takes `row`.
std::int64_t rows_per_chunk_of(std::chrono::nanoseconds row) {
  ChunkSize chunk_size;
  chunk_size.record(1, row);
  return chunk_size.rows_per_chunk(128, 3);
}

TEST(ChunkSizeTest, SplitsEvenlyBeforeTheFirstMeasurement) {
  EXPECT_EQ(ChunkSize().rows_per_chunk(128, 3), 43);
  EXPECT_EQ(ChunkSize().rows_per_chunk(2, 3), 1);
  EXPECT_EQ(ChunkSize().rows_per_chunk(0, 3), 1);
}

TEST(ChunkSize, IsTheWholeBatchIfAsked) {
  ChunkSize chunk_size(true);
  EXPECT_EQ(chunk_size.rows_per_chunk(128, 3), 128);
  chunk_size.record(128, std::chrono::hours(1));
  EXPECT_EQ(chunk_size.rows_per_chunk(128, 3), 128);
}

TEST(ChunkSizeTest, GivesWholeBatchesOfCheapRows) {
  EXPECT_EQ(rows_per_chunk_of(microseconds(1)), 128);
  EXPECT_EQ(rows_per_chunk_of(microseconds(7)), 128);
  EXPECT_EQ(rows_per_chunk_of(microseconds(10)), 43);
}

TEST(ChunkSizeTest, GivesAllWorkersTheSameNumberOfChunks) {
  EXPECT_EQ(rows_per_chunk_of(milliseconds(1)), 43);
  EXPECT_EQ(rows_per_chunk_of(milliseconds(2)), 15);  // three chunks each
  EXPECT_EQ(rows_per_chunk_of(milliseconds(20)), 2);
}

TEST(ChunkSizeTest, GivesSlowRowsOneAtATime) {
  EXPECT_EQ(rows_per_chunk_of(milliseconds(60)), 1);
  EXPECT_EQ(rows_per_chunk_of(std::chrono::hours(1)), 1);
}

TEST(ChunkSizeTest, GivesWholeBatchesIfThereAreMoreBatchesThanWorkers) {
  ChunkSize chunk_size;
  chunk_size.record(1, microseconds(100));
  EXPECT_EQ(chunk_size.rows_per_chunk(128, 3, 3), 43);
  EXPECT_EQ(chunk_size.rows_per_chunk(128, 3, 4), 128);
  EXPECT_EQ(chunk_size.rows_per_chunk(512, 3, 4),
            171);  // a whole batch would take too long
}

TEST(ChunkSizeTest, KnowsWhichChunksAreShort) {
  ChunkSize chunk_size;
  EXPECT_FALSE(chunk_size.is_short(1));
  chunk_size.record(1, milliseconds(1));
  EXPECT_TRUE(chunk_size.is_short(7));
  EXPECT_FALSE(chunk_size.is_short(8));
}

TEST(ChunkSizeTest, AdaptsToTheCostOfRows) {
  ChunkSize chunk_size;
  chunk_size.record(8, milliseconds(8));
  EXPECT_EQ(chunk_size.rows_per_chunk(128, 2), 32);
  for (int i = 0; i < 40; ++i) chunk_size.record(128, microseconds(128));
  EXPECT_EQ(chunk_size.rows_per_chunk(128, 2), 128);
}

}  // namespace
}  // namespace millstream
