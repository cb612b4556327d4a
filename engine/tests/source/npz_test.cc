#include <gtest/gtest.h>

#include "millstream/codec/npy.h"
#include "millstream/core/error.h"
#include "millstream/source/npy.h"
#include "source/source_conformance.h"
#include "zip.h"

namespace millstream {
namespace {

std::string npy(const TrueField& truth) {
  std::vector<std::int64_t> extents = {static_cast<std::int64_t>(truth.bytes.size()) /
                                       byte_size(truth.field)};
  for (const std::int64_t extent : truth.field.shape.extents())
    extents.push_back(extent);
  return npy_header(truth.field.dtype, Shape(extents)) + truth.bytes;
}

const TrueField kX = counted({"x", DType::kFloat32, {5, 3}}, 40);
const TrueField kY = counted({"y", DType::kInt64, {}}, 40);
const TrueField kShort = counted({"y", DType::kInt64, {}}, 3);

SourceCase npz(std::string name, bool x_deflated, bool y_deflated, bool large) {
  return {std::move(name), {kX, kY}, [=](const TemporaryFolder& folder) {
            const auto path =
                folder.write("x.npz", make_zip({{"x.npy", npy(kX), x_deflated},
                                                {"y.npy", npy(kY), y_deflated},
                                                {"notes.txt", "not an array", true}},
                                               large));
            return std::make_shared<ColumnsSource>(
                npz_source(path, std::vector<std::string>{}, folder.path() / "cache"));
          }};
}

INSTANTIATE_TEST_SUITE_P(Npz, SourceConformance,
                         testing::Values(npz("Stored", false, false, false),
                                         npz("Deflated", true, true, false),
                                         npz("Mixed", false, true, false),
                                         npz("Zip64", true, false, true)),
                         case_name);

TEST(NpzSource, ReadsOnlyTheRequestedMembers) {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "x.npz", make_zip({{"x.npy", npy(kX), false}, {"y.npy", npy(kY), false}}, false));
  const ColumnsSource source = npz_source(path, {"y", "x"});
  ASSERT_EQ(source.schema().size(), 2u);
  EXPECT_EQ(source.schema()[0].name, "y");
  EXPECT_EQ(npz_source(path, {"y.npy"}).schema()[0].name, "y");
  EXPECT_EQ(
      error_of<ArgumentError>([&] { npz_source(path, {"z"}); }),
      path.string() + ": there is no array 'z', only the members 'x.npy' 'y.npy'");
}

TEST(NpzSource, RejectsMembersWithTheSameName) {
  const TemporaryFolder folder;
  const auto twice = folder.write(
      "x.npz", make_zip({{"x.npy", npy(kX), false}, {"x.npy", npy(kY), false}}, false));
  EXPECT_NE(error_of<DataError>([&] {
              npz_source(twice, {"x"});
            }).find(": expected members with different names, found a second 'x.npy'"),
            std::string::npos);
  const auto none =
      folder.write("none.npz", make_zip({{"x.txt", "hello", false}}, false));
  EXPECT_EQ(error_of<DataError>([&] { npz_source(none); }),
            none.string() +
                ": offset 46: expected members whose names end in .npy, found only "
                "'x.txt'");
}

TEST(NpzSource, IgnoresOtherMembers) {
  const TemporaryFolder folder;
  std::string zip =
      make_zip({{"x.npy", npy(kX), false}, {"z.npy", "packed", false}}, false);
  zip[zip.find("PK\x01\x02", zip.find("PK\x01\x02") + 1) + 10] = 12;
  const auto path = folder.write("x.npz", zip);
  EXPECT_EQ(npz_source(path, {"x"}).size(), 40);
  EXPECT_NE(error_of<DataError>([&] {
              npz_source(path);
            }).find("expected 'z.npy' stored (0) or deflated (8), found 12"),
            std::string::npos);
}

TEST(NpzSource, ErrorsNameTheOffsetInTheFile) {
  const TemporaryFolder folder;
  const std::string zip = make_zip({{"x.npy", npy(kX) + "more", false}}, false);
  const std::size_t values = zip.find("\x93NUMPY") + npy(kX).size() - kX.bytes.size();
  const auto path = folder.write("x.npz", zip);
  EXPECT_NE(error_of<DataError>([&] {
              npz_source(path);
            }).find("x.npz[x]: offset " + std::to_string(values) + ": expected"),
            std::string::npos);
}

TEST(NpzSource, RejectsDamage) {
  const TemporaryFolder folder;
  const auto cache = folder.path() / "cache";
  std::string zip = make_zip({{"x.npy", npy(kX), true}}, false);
  EXPECT_THROW(npz_source(folder.write("a.npz", zip)), ArgumentError);  // no cache
  zip[60] ^= 0x55;
  const auto damaged = folder.write("b.npz", zip);
  EXPECT_NE(error_of<DataError>([&] {
              npz_source(damaged, {}, cache);
            }).find("b.npz[x.npy]: offset"),
            std::string::npos);
  std::string wrong = make_zip({{"x.npy", npy(kX), true}}, false);
  wrong[wrong.find("PK\x01\x02") + 16] ^= 1;  // the CRC
  const auto sum = folder.write("c.npz", wrong);
  EXPECT_NE(
      error_of<DataError>([&] { npz_source(sum, {}, cache); }).find("expected CRC"),
      std::string::npos);
  wrong = make_zip({{"x.npy", npy(kX), true}}, false);
  wrong[wrong.find("PK\x01\x02") + 24] ^= 1;  // the size
  const auto length = folder.write("d.npz", wrong);
  EXPECT_NE(error_of<DataError>([&] {
              npz_source(length, {}, cache);
            }).find("bytes when inflated"),
            std::string::npos);
  const auto text_only =
      folder.write("e.npz", make_zip({{"x.npy", "not an array", false}}, false));
  EXPECT_NE(error_of<DataError>([&] {
              npz_source(text_only, {}, cache);
            }).find("e.npz[x]: offset"),
            std::string::npos);
}

TEST(NpzSource, ErrorsNameTheMemberInsteadOfItsCopy) {
  const TemporaryFolder folder;
  const auto cache = folder.path() / "cache";
  for (const bool deflated : {false, true}) {
    const auto message = [&](const std::vector<ZipContent>& members) {
      const auto path = folder.write("x.npz", make_zip(members, false));
      return error_of<DataError>([&] { npz_source(path, {}, cache); });
    };
    std::string fortran = npy(kX);
    fortran.replace(fortran.find("False"), 5, "True ");
    EXPECT_NE(message({{"x.npy", fortran, deflated}}).find("x.npz[x]: offset"),
              std::string::npos);
    const std::string unequal =
        message({{"x.npy", npy(kX), deflated}, {"y.npy", npy(kShort), deflated}});
    EXPECT_NE(unequal.find("expected as many rows"), std::string::npos);
    EXPECT_NE(unequal.find("x.npz[x], 40, found 3"), std::string::npos) << unequal;
    EXPECT_NE(message({{"caf\xE9.npy", npy(kX), deflated}})
                  .find("x.npz: offset 0: expected a member with a name in UTF-8"),
              std::string::npos);
  }
}

TEST(NpzSource, UnsafeNamesStayInTheCacheFolder) {
  const TemporaryFolder folder;
  const auto cache = folder.path() / "cache";
  const auto path =
      folder.write("x.npz", make_zip({{"../../escaped/x.npy", npy(kX), true}}, false));
  const ColumnsSource source = npz_source(path, {}, cache);
  EXPECT_EQ(source.size(), 40);
  for (const std::string& name :
       {std::string(300, 'n'), std::string("a\0b", 3), std::string("/")}) {
    const auto odd =
        folder.write("x.npz", make_zip({{name + ".npy", npy(kX), true}}, false));
    EXPECT_EQ(npz_source(odd, {}, cache).size(), 40) << name;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_TRUE(entry.path() == path || entry.path() == cache) << entry.path();
  }
}

}  // namespace
}  // namespace millstream
