#include "millstream/source/write.h"

#include <gtest/gtest.h>

#include "millstream/core/error.h"
#include "millstream/source/arrays.h"
#include "millstream/source/csv.h"
#include "millstream/source/idx.h"
#include "millstream/source/npy.h"
#include "millstream/source/packed.h"
#include "source/source_conformance.h"

namespace millstream {
namespace {

ArraysSource in_memory(const std::vector<TrueField>& truth) {
  std::vector<Array> arrays;
  for (const TrueField& field : truth) {
    const auto bytes = std::make_shared<std::string>(field.bytes);
    const std::int64_t row = byte_size(field.field);
    arrays.push_back({field.field, static_cast<std::int64_t>(bytes->size()) / row,
                      reinterpret_cast<const std::byte*>(bytes->data()), row, bytes});
  }
  return ArraysSource(std::move(arrays));
}

const std::vector<TrueField> kTruth = {counted({"x", DType::kFloat32, {3, 2}}, 47),
                                       counted({"y", DType::kInt32, {}}, 47)};

// The suite reads the written files and compares them with the original samples.
INSTANTIATE_TEST_SUITE_P(
    Written, SourceConformance,
    testing::Values(
        SourceCase{"Npy", kTruth,
                   [](const TemporaryFolder& folder) {
                     const auto x = folder.path() / "x.npy",
                                y = folder.path() / "y.npy";
                     write_npy(in_memory(kTruth), {x, y});
                     return std::make_shared<ColumnsSource>(
                         npy_source(std::vector<FieldFiles>{{"x", {x}}, {"y", {y}}}));
                   }},
        SourceCase{"Idx", kTruth,
                   [](const TemporaryFolder& folder) {
                     const auto x = folder.path() / "x", y = folder.path() / "y";
                     write_idx(in_memory(kTruth), {x, y});
                     return std::make_shared<ColumnsSource>(
                         idx_source(std::vector<FieldFiles>{{"x", {x}}, {"y", {y}}}));
                   }},
        SourceCase{"Packed", kTruth,
                   [](const TemporaryFolder& folder) {
                     write_packed(in_memory(kTruth), folder.path() / "x");
                     return std::make_shared<ColumnsSource>(
                         packed_source(folder.path() / "x"));
                   }},
        SourceCase{"Csv",
                   {{{"a", DType::kFloat64, {}},
                     raw_all(std::vector<double>{0.1, 1e300, -0.0, 3})},
                    {{"b", DType::kInt64, {}},
                     raw_all(std::vector<std::int64_t>{1, -2, 3, 2000000000})}},
                   [](const TemporaryFolder& folder) {
                     const ArraysSource source = in_memory(
                         {{{"a", DType::kFloat64, {}},
                           raw_all(std::vector<double>{0.1, 1e300, -0.0, 3})},
                          {{"b", DType::kInt64, {}},
                           raw_all(std::vector<std::int64_t>{1, -2, 3, 2000000000})}});
                     write_csv(source, folder.path() / "x.csv");
                     return std::make_shared<ArraysSource>(
                         csv_source(folder.path() / "x.csv"));
                   }}),
    case_name);

TEST(Write, WritesTables) {
  const TemporaryFolder folder;
  const ArraysSource source = in_memory(
      {{{"x\"y", DType::kUint8, {2}}, raw_all(std::vector<std::uint8_t>{1, 2, 3, 4})},
       {{"z", DType::kFloat32, {}}, raw_all(std::vector<float>{0.1f, 2})}});
  write_csv(source, folder.path() / "x.tsv", '\t');
  EXPECT_EQ(contents(folder.path() / "x.tsv"),
            "\"x\"\"y_0\"\t\"x\"\"y_1\"\t\"z\"\n1\t2\t0.1\n3\t4\t2.0\n");
}

TEST(Write, ReportsProgressAndStops) {
  const TemporaryFolder folder;
  const ArraysSource source =
      in_memory({counted({"x", DType::kUint8, {1000, 1000}}, 11)});
  std::vector<std::int64_t> seen;
  write_packed(source, folder.path() / "x",
               [&](std::int64_t samples) { seen.push_back(samples); });
  EXPECT_EQ(seen, (std::vector<std::int64_t>{4, 8, 11}));
  EXPECT_THROW(write_packed(source, folder.path() / "y",
                            [](std::int64_t) { throw Cancelled("enough"); }),
               Cancelled);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "y"));
}

TEST(Write, RejectsUnsupportedData) {
  const TemporaryFolder folder;
  const ArraysSource wide = in_memory({counted({"x", DType::kInt64, {}}, 3)});
  EXPECT_THROW(write_idx(wide, {folder.path() / "x"}), ArgumentError);
  EXPECT_THROW(write_npy(wide, {}), ArgumentError);
  const ArraysSource complex = in_memory({counted({"x", DType::kComplex64, {}}, 3)});
  EXPECT_THROW(write_csv(complex, folder.path() / "x"), ArgumentError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace millstream
