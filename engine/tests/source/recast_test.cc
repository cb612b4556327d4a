#include "millstream/source/recast.h"

#include <gtest/gtest.h>

#include "millstream/codec/npy.h"
#include "millstream/core/error.h"
#include "millstream/source/arrays.h"
#include "millstream/source/npy.h"
#include "source/source_conformance.h"

namespace millstream {
namespace {

const Field kImage = {"x", DType::kUint8, {3, 5}};
const Field kLabel = {"y", DType::kUint8, {}};
constexpr std::int64_t kRows = 60;

SharedSource on_disk(const TemporaryFolder& folder) {
  std::vector<FieldFiles> fields;
  for (const Field& field : {kImage, kLabel}) {
    std::vector<std::int64_t> extents = {kRows};
    for (const auto extent : field.shape.extents()) extents.push_back(extent);
    fields.push_back(
        {field.name,
         {folder.write(field.name + ".npy", npy_header(field.dtype, Shape(extents)) +
                                                counted(field, kRows).bytes)}});
  }
  return std::make_shared<ColumnsSource>(npy_source(fields));
}

SharedSource in_memory() {
  std::vector<Array> arrays;
  for (const Field& field : {kImage, kLabel}) {
    const auto bytes = std::make_shared<std::string>(counted(field, kRows).bytes);
    arrays.push_back({field, kRows, reinterpret_cast<const std::byte*>(bytes->data()),
                      byte_size(field), bytes});
  }
  return std::make_shared<ArraysSource>(std::move(arrays));
}

/// The rows of a field of bytes as int32.
TrueField widened(const TrueField& from, const std::string& name) {
  TrueField wide{{name, DType::kInt32, from.field.shape}, {}};
  for (const char byte : from.bytes) {
    wide.bytes += byte;
    wide.bytes += std::string(3, '\0');
  }
  return wide;
}

TrueField transposed(const TrueField& from, const Field& to) {
  TrueField other{to, from.bytes};
  const auto rows = static_cast<std::size_t>(from.field.shape[0]);
  const auto columns = static_cast<std::size_t>(from.field.shape[1]);
  for (std::size_t k = 0; k < from.bytes.size(); k += rows * columns) {
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        other.bytes[k + c * rows + r] = from.bytes[k + r * columns + c];
      }
    }
  }
  return other;
}

const TrueField kTrueImage = counted(kImage, kRows);
const Field kUpright = {"image", DType::kUint8, {5, 3, 1}};
const std::vector<TrueField> kShaped = {
    {{"image", DType::kUint8, {3, 5, 1}}, kTrueImage.bytes},
    widened(counted(kLabel, kRows), "label")};
const std::vector<TrueField> kTransposed = {
    transposed(kTrueImage, kUpright),
    {{"y", DType::kUint8, {}}, counted(kLabel, kRows).bytes}};

std::vector<RecastField> fields(const std::vector<TrueField>& truth, bool transpose) {
  return {{truth[0].field, 0, transpose}, {truth[1].field, 1}};
}

INSTANTIATE_TEST_SUITE_P(
    Recast, SourceConformance,
    testing::Values(SourceCase{"Shaped", kShaped,
                               [](const TemporaryFolder& folder) {
                                 return std::make_shared<Recast>(
                                     on_disk(folder), fields(kShaped, false));
                               }},
                    SourceCase{"ShapedInMemory", kShaped,
                               [](const TemporaryFolder&) {
                                 return std::make_shared<Recast>(
                                     in_memory(), fields(kShaped, false));
                               }},
                    SourceCase{"Transposed", kTransposed,
                               [](const TemporaryFolder& folder) {
                                 return std::make_shared<Recast>(
                                     on_disk(folder), fields(kTransposed, true));
                               }},
                    SourceCase{"TransposedInMemory", kTransposed,
                               [](const TemporaryFolder&) {
                                 return std::make_shared<Recast>(
                                     in_memory(), fields(kTransposed, true));
                               }},
                    SourceCase{"Reordered",
                               {kShaped[1], kShaped[0]},
                               [](const TemporaryFolder& folder) {
                                 return std::make_shared<Recast>(
                                     on_disk(folder),
                                     std::vector<RecastField>{{kShaped[1].field, 1},
                                                              {kShaped[0].field, 0}});
                               }}),
    case_name);

TEST(Recast, RejectsInvalidArguments) {
  const SharedSource source = in_memory();
  const RecastField label = {kLabel, 1};
  EXPECT_EQ(error_of<ArgumentError>([&] {
              Recast(source, {{{"x", DType::kUint8, {3, 4}}}, label});
            }),
            "expected x: uint8(3, 4) of as many elements as x: uint8(3, 5), found 12 "
            "and 15");
  EXPECT_THROW(Recast(source, {label}), ArgumentError);
  EXPECT_THROW(Recast(source, {{kImage}, {kLabel, 1, true}}), ArgumentError);
  EXPECT_THROW(Recast(source, {{kImage}, {{"x", DType::kUint8, {}}, 1}}),
               ArgumentError);
  EXPECT_THROW(Recast(source, {{kImage}, {kImage}}), ArgumentError);
  EXPECT_THROW(Recast(source, {{kImage}, {kLabel, 2}}), ArgumentError);
  EXPECT_THROW(Recast(source, {{kImage}, {kLabel, -1}}), ArgumentError);
  EXPECT_THROW(Recast(nullptr, {}), ArgumentError);
  EXPECT_EQ(Recast(source, {{kImage}, label}).traits(), Traits{});
}

}  // namespace
}  // namespace millstream
