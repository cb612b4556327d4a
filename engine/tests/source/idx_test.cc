#include "millstream/source/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>

#include "gzip.h"
#include "millstream/codec/idx.h"
#include "millstream/core/error.h"
#include "millstream/source/unpack.h"
#include "source/source_conformance.h"

namespace millstream {
namespace {

/// A big-endian IDX file with these rows.
std::string idx(const TrueField& truth) {
  const std::int64_t row = byte_size(truth.field);
  std::vector<std::int64_t> extents = {static_cast<std::int64_t>(truth.bytes.size()) /
                                       row};
  for (const std::int64_t extent : truth.field.shape.extents())
    extents.push_back(extent);
  const auto header = idx_header(truth.field.dtype, Shape(extents));
  std::string bytes(reinterpret_cast<const char*>(header.data()), header.size());
  const auto item = static_cast<std::size_t>(byte_size(truth.field.dtype));
  for (std::size_t at = 0; at < truth.bytes.size(); at += item) {
    std::string value = truth.bytes.substr(at, item);
    std::ranges::reverse(value);
    bytes += value;
  }
  return bytes;
}

SourceCase plain(std::string name, std::vector<TrueField> truth) {
  return {std::move(name), truth, [truth](const TemporaryFolder& folder) {
            std::vector<FieldFiles> fields;
            for (const TrueField& field : truth) {
              fields.push_back(
                  {field.field.name, {folder.write(field.field.name, idx(field))}});
            }
            return std::make_shared<ColumnsSource>(idx_source(fields));
          }};
}

SourceCase zipped(std::string name, std::vector<TrueField> truth) {
  return {std::move(name), truth, [truth](const TemporaryFolder& folder) {
            std::vector<FieldFiles> fields;
            for (const TrueField& field : truth) {
              fields.push_back(
                  {field.field.name,
                   {folder.write(field.field.name + "-ubyte.gz", gzip(idx(field)))}});
            }
            return std::make_shared<ColumnsSource>(
                idx_source(fields, folder.path() / "cache"));
          }};
}

const TrueField kImages = counted({"image", DType::kUint8, {28, 28}}, 40);
const TrueField kLabels = counted({"label", DType::kUint8, {}}, 40);

INSTANTIATE_TEST_SUITE_P(
    Idx, SourceConformance,
    testing::Values(plain("Images", {kImages, kLabels}),
                    zipped("GzippedImages", {kImages, kLabels}),
                    plain("Int8", {counted({"x", DType::kInt8, {2}}, 11)}),
                    plain("Int16", {counted({"x", DType::kInt16, {3}}, 11)}),
                    plain("Int32", {counted({"x", DType::kInt32, {}}, 11)}),
                    plain("Float32", {counted({"x", DType::kFloat32, {2, 2}}, 11)}),
                    plain("Float64", {counted({"x", DType::kFloat64, {5}}, 11)}),
                    plain("Large", {counted({"x", DType::kFloat32, {400, 400}}, 5)})),
    case_name);

TEST(Unpacked, ReturnsPlainFilesUnchanged) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "plain");
  EXPECT_EQ(unpacked(path, {}), path);
}

TEST(Unpacked, UnpacksOnceAndAgainWhenTheFileChanges) {
  const TemporaryFolder folder;
  const auto cache = folder.path() / "cache";
  const auto path = folder.write("a.txt.gz", gzip("one") + gzip("two"));
  const auto to = unpacked(path, cache);
  EXPECT_EQ(contents(to), "onetwo");
  EXPECT_EQ(to.extension(), ".txt");
  const auto written = std::filesystem::last_write_time(to);
  EXPECT_EQ(unpacked(path, cache), to);
  EXPECT_EQ(std::filesystem::last_write_time(to), written);
  std::filesystem::resize_file(to, 2);  // damage the copy
  EXPECT_EQ(contents(unpacked(path, cache)), "onetwo");
  const auto later = [&](const std::string& bytes) {
    const auto time = std::filesystem::last_write_time(to) + std::chrono::seconds(1);
    folder.write("cache/" + to.filename().string(), bytes);
    std::filesystem::last_write_time(to, time);
    return time;
  };
  later("onetvo");
  EXPECT_EQ(contents(unpacked(path, cache)), "onetwo");
  const auto touched = later("onetwo");
  EXPECT_EQ(contents(unpacked(path, cache)), "onetwo");
  EXPECT_EQ(std::filesystem::last_write_time(to), touched);
  const std::string sum = contents(to.string() + ".sum");
  folder.write("cache/" + to.filename().string() + ".sum",
               sum.substr(0, sum.rfind(' ')) + "\n");  // without the time of change
  EXPECT_EQ(unpacked(path, cache), to);
  EXPECT_EQ(contents(to.string() + ".sum"), sum);
  folder.write("a.txt.gz", gzip("another"));
  EXPECT_EQ(contents(unpacked(path, cache)), "another");
}

TEST(Unpacked, RejectsDamage) {
  const TemporaryFolder folder;
  const auto cache = folder.path() / "cache";
  const std::string whole = gzip(std::string(100'000, 'a') + "b");
  const auto refuses = [&](const std::string& bytes) {
    const auto path = folder.write("a.gz", bytes);
    const std::string what = error_of<DataError>([&] { unpacked(path, cache); });
    EXPECT_NE(what.find("a.gz: offset"), std::string::npos) << what;
    return what;
  };
  EXPECT_NE(refuses(whole.substr(0, whole.size() / 2)).find("found the end"),
            std::string::npos);
  EXPECT_NE(refuses(whole.substr(0, whole.size() - 1)).find("found the end"),
            std::string::npos);
  refuses(whole.substr(0, 5));
  refuses(whole + "trash");
  std::string wrong = whole;
  wrong[wrong.size() - 8] ^= 1;
  EXPECT_NE(refuses(wrong).find("incorrect data check"), std::string::npos);
  wrong = whole;
  wrong[wrong.size() - 1] ^= 1;
  EXPECT_NE(refuses(wrong).find("incorrect length check"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(cache));  // no incomplete file remains
  EXPECT_EQ(
      contents(unpacked(folder.write("a.gz", whole + std::string(9, '\0')), cache))
          .size(),
      100'001u);
  EXPECT_THROW(unpacked(folder.path() / "a.gz", {}), ArgumentError);
}

}  // namespace
}  // namespace millstream
