#include "millstream/source/npy.h"

#include <gtest/gtest.h>

#include "millstream/codec/npy.h"
#include "millstream/core/error.h"
#include "source/source_conformance.h"

namespace millstream {
namespace {

std::string npy(const TrueField& truth) {
  const std::int64_t row = byte_size(truth.field);
  std::vector<std::int64_t> extents = {static_cast<std::int64_t>(truth.bytes.size()) /
                                       row};
  for (const std::int64_t extent : truth.field.shape.extents())
    extents.push_back(extent);
  return npy_header(truth.field.dtype, Shape(extents)) + truth.bytes;
}

/// Rows [begin, end) of a field.
TrueField part(const TrueField& truth, std::size_t begin, std::size_t end) {
  const auto row = static_cast<std::size_t>(byte_size(truth.field));
  return {truth.field, truth.bytes.substr(begin * row, (end - begin) * row)};
}

SourceCase whole(std::string name, std::vector<TrueField> truth) {
  return {std::move(name), truth, [truth](const TemporaryFolder& folder) {
            std::vector<FieldFiles> fields;
            for (const TrueField& field : truth) {
              fields.push_back({field.field.name,
                                {folder.write(field.field.name + ".npy", npy(field))}});
            }
            return std::make_shared<ColumnsSource>(npy_source(fields));
          }};
}

SourceCase sharded(std::string name, TrueField truth, std::vector<std::size_t> cuts) {
  return {std::move(name), {truth}, [truth, cuts](const TemporaryFolder& folder) {
            std::size_t begin = 0;
            int shard = 0;
            for (const std::size_t end : cuts) {
              folder.write("x/" + std::to_string(shard++) + ".npy",
                           npy(part(truth, begin, end)));
              begin = end;
            }
            folder.write("x/readme.txt", "not a shard");
            return std::make_shared<ColumnsSource>(npy_source(std::vector<FieldFiles>{
                {truth.field.name, shards_of(folder.path() / "x", ".npy")}}));
          }};
}

std::vector<std::size_t> every(std::size_t step, std::size_t rows) {
  std::vector<std::size_t> cuts;
  for (std::size_t cut = step; cut <= rows; cut += step) cuts.push_back(cut);
  return cuts;
}

const Field kImage = {"image", DType::kUint8, {28, 28}};
const Field kLabel = {"label", DType::kInt64, {}};

INSTANTIATE_TEST_SUITE_P(
    Npy, SourceConformance,
    testing::Values(
        whole("ImagesAndLabels", {counted(kImage, 50), counted(kLabel, 50)}),
        whole("Bytes", {counted({"x", DType::kUint8, {}}, 9)}),
        whole("Halves", {counted({"x", DType::kFloat16, {3}}, 21)}),
        whole("Rows", {counted({"x", DType::kFloat32, {4}}, 3)}),
        whole("LargeRows", {counted({"x", DType::kFloat32, {400, 400}}, 5)}),
        sharded("Shards", counted(kImage, 57), {10, 11, 11, 40, 57}),
        sharded("ManyShards", counted(kLabel, 300), every(1, 300)),
        sharded("LargeShards", counted({"x", DType::kUint8, {800, 800}}, 5), {2, 5})),
    case_name);

std::string read_error(const Source& source, std::vector<std::int64_t> indices,
                       DType dtype) {
  const Field& field = source.schema().front();
  std::vector<std::byte> to(indices.size() * 16 *
                            static_cast<std::size_t>(field.shape.elements() + 1));
  std::vector<Column> columns = {{dtype, field.shape, to.data(),
                                  byte_size(dtype) * field.shape.elements(), nullptr}};
  Memory memory;
  return error_of<Error>([&] { read_samples(source, indices, columns, memory); });
}

TEST(NpySource, RejectsLabelsThatDoNotFit) {
  const TemporaryFolder folder;
  TrueField truth = counted(kLabel, 10);
  const std::int64_t large = (std::int64_t{1} << 40) + 5;
  truth.bytes.replace(8 * 7, 8, raw(large));
  const ColumnsSource source =
      npy_source({{"label", {folder.write("y.npy", npy(truth))}}});
  EXPECT_EQ(read_error(source, {1, 2, 3}, DType::kInt32), "");
  EXPECT_EQ(read_error(source, {1, 7}, DType::kInt32),
            (folder.path() / "y.npy").string() +
                ": label: sample 7 holds a value of dtype int64 that int32 cannot "
                "hold, 1099511627781"
                "; set jax_enable_x64 for 64-bit values, or store values that int32 "
                "can hold");
}

TEST(NpySource, ReadsBooleansThatAreNeitherZeroNorOne) {
  const TemporaryFolder folder;
  const TrueField truth = {{"x", DType::kBool, {2}}, std::string("\0\1\2\xFF", 4)};
  const ColumnsSource source = npy_source({{"x", {folder.write("x.npy", npy(truth))}}});
  std::string to(4, ' ');
  std::vector<Column> columns = {
      {DType::kBool, {2}, reinterpret_cast<std::byte*>(to.data()), 2, nullptr}};
  Memory memory;
  read_samples(source, std::vector<std::int64_t>{0, 1}, columns, memory);
  EXPECT_EQ(to, std::string("\0\1\1\1", 4));
}

TEST(NpySource, OrdersShardsByNumber) {
  const TemporaryFolder folder;
  const std::vector<std::string> names = {
      "0.npy",         "part-0.npy",     "part-1.npy",  "part-01.npy",
      "part-2.npy",    "part-9.npy",     "part-10.npy", "part-10a.npy",
      "part-11-2.npy", "part-11-10.npy", "part.npy"};
  for (const std::string& name : names) folder.write(name, "");
  folder.write("._part-1.npy", "not a shard");
  std::vector<std::string> found;
  for (const auto& path : shards_of(folder.path(), ".npy")) {
    found.push_back(path.filename().string());
  }
  EXPECT_EQ(found, names);
}

TEST(NpySource, RejectsShardsAndFieldsThatDoNotMatch) {
  const TemporaryFolder folder;
  const auto a = folder.write("a.npy", npy(counted({"x", DType::kFloat32, {2}}, 4)));
  const auto b = folder.write("b.npy", npy(counted({"x", DType::kFloat64, {2}}, 4)));
  const auto c = folder.write("c.npy", npy(counted({"x", DType::kFloat32, {2}}, 5)));
  const std::string shards = error_of<DataError>([&] { npy_source({{"x", {a, b}}}); });
  EXPECT_EQ(shards, b.string() + ": offset 0: expected x: float32(2,) as in " +
                        a.string() + ", found x: float64(2,)");
  const std::string fields = error_of<DataError>([&] {
    npy_source({{"x", {a}}, {"y", {c}}});
  });
  EXPECT_EQ(fields, c.string() +
                        ": offset 128: expected as many rows of 'y' as 'x' has in " +
                        a.string() + ", 4, found 5");
  const auto none = folder.write("none.npy", npy_header(DType::kFloat32, {0, 2}));
  EXPECT_EQ(error_of<DataError>([&] {
              npy_source({{"x", {none}}});
            }),
            none.string() + ": offset 128: expected at least one row of 'x', found 0");
  EXPECT_THROW(npy_source({{"x", {folder.path()}}}), DataError);
  EXPECT_THROW(npy_source({}), ArgumentError);
  EXPECT_THROW(shards_of(folder.path(), ".idx"), DataError);
}

TEST(NpySource, RejectsTooManyRows) {
  const TemporaryFolder folder;
  const std::int64_t rows = std::int64_t{1} << 58;
  const auto path = folder.write("x.npy", npy_header(DType::kUint8, {rows, 0}));
  const std::vector<std::filesystem::path> shards(32, path);
  EXPECT_EQ(error_of<DataError>([&] {
              npy_source({{"x", shards}});
            }),
            path.string() +
                ": offset 128: expected fewer than 2^63 rows of x: uint8(0,) in all, "
                "found 288230376151711744 more than 8935141660703064064");
  const ColumnsSource most = npy_source({{"x", std::vector(31, path)}});
  EXPECT_EQ(most.size(), 31 * rows);
}

class ShrinkingFile : public testing::TestWithParam<std::int64_t> {};

TEST_P(ShrinkingFile, ErrorNamesTheFile) {
  const TemporaryFolder folder;
  const Field field = {"x", DType::kUint8, {GetParam()}};
  const std::int64_t rows = 400'000 / GetParam();
  const auto path = folder.write("x.npy", npy(counted(field, rows)));
  const ColumnsSource source = npy_source({{"x", {path}}});
  EXPECT_EQ(read_error(source, {0, rows - 1}, DType::kUint8), "");
  std::filesystem::resize_file(path, 200'001);
  EXPECT_NE(read_error(source, {0, rows - 1}, DType::kUint8).find("x.npy: offset"),
            std::string::npos);
  EXPECT_NE(read_error(source, {rows - 1}, DType::kInt32).find("x.npy: offset"),
            std::string::npos);
  std::filesystem::resize_file(path, 0);
  EXPECT_NE(read_error(source, {0}, DType::kUint8).find("x.npy: offset"),
            std::string::npos);
}

TEST(NpySource, DetectsAMissingPageAtOnce) {
  const Field field = {"x", DType::kUint8, {10}};
  const TrueField ones = {field, std::string(10'000, '\1')};
  for (const std::size_t shards : {1u, 2u}) {
    for (const std::uintmax_t size : {10'118u, 9'990u, 5'000u}) {
      const TemporaryFolder folder;
      std::vector<std::filesystem::path> paths;
      for (std::size_t i = 0; i < shards; ++i) {
        paths.push_back(folder.write(std::to_string(i) + ".npy", npy(ones)));
      }
      const ColumnsSource source = npy_source({{"x", paths}});
      // The row of the last shard at which the truncated file ends.
      const auto row =
          static_cast<std::int64_t>((size - 128) / 10 + 1000 * shards) - 1000;
      EXPECT_EQ(read_error(source, {row}, DType::kUint8), "");
      std::filesystem::resize_file(paths.back(), size);
      const std::string error = read_error(source, {0, row}, DType::kUint8);
      EXPECT_NE(error.find(paths.back().string() + ": offset"), std::string::npos)
          << shards << " " << size << ": " << error;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RowBytes, ShrinkingFile, testing::Values(1, 784, 100'000));

TEST(NpySource, OpensAHundredMillionRows) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("x.npy", npy_header(DType::kUint8, {100'000'000, 100}));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + 10'000'000'000);
  const ColumnsSource source = npy_source({{"x", {path}}});
  EXPECT_EQ(source.size(), 100'000'000);
  EXPECT_EQ(read_error(source, {99'999'999, 0, 50'000'000}, DType::kUint8), "");
}

}  // namespace
}  // namespace millstream
