#include "millstream/codec/inflate.h"

#include <gtest/gtest.h>

#include "gzip.h"
#include "millstream/core/error.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

std::string inflate(std::string_view bytes, Deflated format,
                    std::int64_t limit = 1 << 20) {
  const auto out = inflated(as_bytes(bytes), format, limit, "x.gz");
  return {reinterpret_cast<const char*>(out.data()), out.size()};
}

TEST(Inflate, ReadsGzipAndDeflate) {
  const std::string long_text(300'000, 'a');
  EXPECT_EQ(inflate(gzip("hello"), Deflated::kGzip), "hello");
  EXPECT_EQ(inflate(gzip("hello") + gzip(" again"), Deflated::kGzip), "hello again");
  EXPECT_EQ(inflate(gzip(long_text), Deflated::kGzip), long_text);
  EXPECT_EQ(inflate(deflated(long_text, -15), Deflated::kRaw), long_text);
}

TEST(Inflate, RefusesDamageAndBombs) {
  const std::string whole = gzip("hello, hello, hello");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(inflate(whole.substr(0, length), Deflated::kGzip), DataError)
        << length;
  }
  std::string wrong = whole;
  wrong[wrong.size() - 6] ^= 1;
  EXPECT_EQ(error_of<DataError>([&] { inflate(wrong, Deflated::kGzip); }),
            "x.gz: offset 25: expected deflated data, found incorrect data check");
  EXPECT_NE(error_of<DataError>([&] {
              inflate(gzip(std::string(10'000'000, 'a')), Deflated::kGzip, 1000);
            }).find("expected at most 1000 bytes when inflated"),
            std::string::npos);
}

TEST(Inflate, KnowsTheCrc) {
  EXPECT_EQ(crc32_of(as_bytes("123456789")), 0xCBF43926u);
  EXPECT_EQ(crc32_of(as_bytes("56789"), crc32_of(as_bytes("1234"))), 0xCBF43926u);
  EXPECT_TRUE(is_gzip(as_bytes("\x1F\x8B")));
  EXPECT_FALSE(is_gzip(as_bytes("\x1F")));
}

}  // namespace
}  // namespace millstream
