#include "millstream/source/packed.h"

#include <gtest/gtest.h>

#include "millstream/codec/packed.h"
#include "millstream/core/error.h"
#include "source/source_conformance.h"

namespace millstream {
namespace {

Schema schema_of(const std::vector<TrueField>& truth) {
  Schema schema;
  for (const TrueField& field : truth) schema.push_back(field.field);
  return schema;
}

std::string records(const std::vector<TrueField>& truth, std::size_t rows) {
  std::string bytes;
  for (std::size_t k = 0; k < rows; ++k) {
    for (const TrueField& field : truth) {
      const auto row = static_cast<std::size_t>(byte_size(field.field));
      bytes += field.bytes.substr(k * row, row);
    }
  }
  return bytes;
}

const std::vector<TrueField> kSmall = {counted({"image", DType::kUint8, {5, 7}}, 33),
                                       counted({"y", DType::kInt64, {}}, 33),
                                       counted({"z", DType::kFloat32, {2}}, 33)};
const std::vector<TrueField> kLarge = {counted({"x", DType::kFloat32, {400, 400}}, 5),
                                       counted({"y", DType::kUint8, {}}, 5)};
const std::vector<TrueField> kOne = {counted({"x", DType::kUint8, {600'000}}, 5)};

SourceCase described(std::string name, std::vector<TrueField> truth, std::size_t rows) {
  return {std::move(name), truth, [truth, rows](const TemporaryFolder& folder) {
            return std::make_shared<ColumnsSource>(packed_source(folder.write(
                "x.packed",
                packed_header(schema_of(truth), static_cast<std::int64_t>(rows)) +
                    records(truth, rows))));
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Packed, SourceConformance,
    testing::Values(described("Small", kSmall, 33), described("LargeRows", kLarge, 5),
                    described("OneField", kOne, 5),
                    SourceCase{"Raw", kSmall,
                               [](const TemporaryFolder& folder) {
                                 return std::make_shared<ColumnsSource>(packed_source(
                                     folder.write("x", "head" + records(kSmall, 33)),
                                     schema_of(kSmall), 4));
                               }}),
    case_name);

TEST(PackedSource, RejectsIncompleteRecords) {
  const TemporaryFolder folder;
  const auto path = folder.write("x", records(kSmall, 33) + "more");
  EXPECT_EQ(
      error_of<DataError>([&] { packed_source(path, schema_of(kSmall)); }),
      path.string() +
          ": offset 1683: expected whole records of 51 bytes, found 4 bytes after "
          "33 records");
  EXPECT_THROW(packed_source(path, schema_of(kSmall), 2000), DataError);
  EXPECT_THROW(packed_source(path, schema_of(kSmall), -1), ArgumentError);
  EXPECT_THROW(packed_source(path, {}), ArgumentError);
  EXPECT_THROW(packed_source(path), DataError);
  EXPECT_THROW(packed_source(folder.write("y", ""), schema_of(kSmall)), DataError);
}

}  // namespace
}  // namespace millstream
