#include "millstream/codec/zip.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"
#include "zip.h"

namespace millstream {
namespace {

std::vector<ZipMember> members_of(std::string_view zip) {
  const auto size = static_cast<std::int64_t>(zip.size());
  const std::size_t start = zip.size() > kZipEnd ? zip.size() - kZipEnd : 0;
  const ZipDirectory directory =
      find_zip_directory(as_bytes(zip.substr(start)), "x.zip", size);
  ByteReader reader(as_bytes(zip).subspan(static_cast<std::size_t>(directory.offset),
                                          static_cast<std::size_t>(directory.size)),
                    "x.zip", directory.offset);
  return parse_zip_directory(reader, directory);
}

std::string_view data_of(std::string_view zip, const ZipMember& member) {
  ByteReader reader(as_bytes(zip).subspan(static_cast<std::size_t>(member.header)),
                    "x.zip", member.header);
  const std::int64_t data =
      zip_member_data(reader, member, static_cast<std::int64_t>(zip.size()));
  return zip.substr(static_cast<std::size_t>(data),
                    static_cast<std::size_t>(member.packed));
}

class Zip : public testing::TestWithParam<bool> {};

TEST_P(Zip, ReadsTheDirectory) {
  const std::string zip =
      make_zip({{"a.npy", "hello", false}, {"b.npy", std::string(900, 'x'), true}},
               GetParam(), "a comment");
  const auto members = members_of(zip);
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0].name, "a.npy");
  EXPECT_EQ(members[0].method, kZipStored);
  EXPECT_EQ(members[0].size, 5);
  EXPECT_EQ(data_of(zip, members[0]), "hello");
  EXPECT_EQ(members[1].method, kZipDeflated);
  EXPECT_EQ(members[1].size, 900);
  EXPECT_LT(members[1].packed, 900);
}

TEST_P(Zip, RejectsEveryTruncation) {
  const std::string zip = make_zip({{"a.npy", "hello", false}}, GetParam());
  for (std::size_t length = 0; length < zip.size(); ++length) {
    EXPECT_THROW(members_of(zip.substr(0, length)), DataError) << length;
  }
}

TEST_P(Zip, NeverReadsOutOfBounds) {
  const std::string zip =
      make_zip({{"a.npy", "hello", false}, {"b.npy", "x", true}}, GetParam());
  for (std::size_t i = 0; i < zip.size(); ++i) {
    for (const char flipped : {'\xFF', '\x00', '\x7F'}) {
      std::string wrong = zip;
      wrong[i] = flipped;
      try {
        for (const ZipMember& member : members_of(wrong)) data_of(wrong, member);
      } catch (const DataError&) {
      } catch (const std::out_of_range&) {  // from `substr` in this test
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Zip, testing::Values(false, true),
                         [](const auto& large) {
                           return large.param ? "Large" : "Small";
                         });

TEST(ZipMembers, UnsupportedKindsAreRejected) {
  std::string zip = make_zip({{"a", "hello", false}}, false);
  const std::size_t entry = zip.find("PK\x01\x02");
  const auto data_error = [&] {
    return error_of<DataError>([&] { data_of(zip, members_of(zip)[0]); });
  };
  zip[entry + 8] = 1;
  EXPECT_NE(data_error().find("an encrypted one"), std::string::npos);
  zip[entry + 8] = 0;
  zip[entry + 10] = 12;
  EXPECT_NE(data_error().find("'a' stored (0) or deflated (8), found 12"),
            std::string::npos);
  EXPECT_NE(error_of<DataError>([&] {
              members_of("no zip at all");
            }).find("expected the end record of a zip file"),
            std::string::npos);
}

}  // namespace
}  // namespace millstream
