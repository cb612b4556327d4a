#include "millstream/codec/inflate.h"

#include <gtest/gtest.h>

#include "gzip.h"
#include "millstream/core/error.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

std::string inflate(std::string_view bytes, Deflated format,
                    std::optional<std::int64_t> size = {}, std::int64_t piece = 1000) {
  std::string all;
  const auto read = [&](std::int64_t offset, std::int64_t count) {
    const auto part = as_bytes(bytes).subspan(static_cast<std::size_t>(offset),
                                              static_cast<std::size_t>(count));
    return std::vector<std::byte>(part.begin(), part.end());
  };
  const auto sink = [&](std::span<const std::byte> out) {
    all.append(reinterpret_cast<const char*>(out.data()), out.size());
  };
  const DeflatedRange packed = {"x.gz", 0,    static_cast<std::int64_t>(bytes.size()),
                                format, size, {}};
  const Contents contents = inflate_all(packed, read, sink, piece);
  EXPECT_EQ(contents.size, static_cast<std::int64_t>(all.size()));
  EXPECT_EQ(contents.crc, crc32_of(as_bytes(all)));
  return all;
}

TEST(Inflate, ReadsGzipAndDeflate) {
  const std::string long_text(300'000, 'a');
  EXPECT_EQ(inflate(gzip("hello"), Deflated::kGzip), "hello");
  EXPECT_EQ(inflate(gzip("hello") + gzip(" again"), Deflated::kGzip), "hello again");
  EXPECT_EQ(inflate(gzip(long_text), Deflated::kGzip), long_text);
  EXPECT_EQ(inflate(deflated(long_text, -15), Deflated::kRaw), long_text);
  const std::string padded = gzip("one") + gzip("two") + std::string(50, '\0');
  for (const std::int64_t piece : {2, 3, 7, 23, 24, 1000}) {
    EXPECT_EQ(inflate(padded, Deflated::kGzip, 6, piece), "onetwo") << piece;
    EXPECT_THROW(inflate(padded + "x", Deflated::kGzip, {}, piece), DataError);
  }
}

TEST(Inflate, RejectsDamageAndOversizedContents) {
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
            }).find("expected 1000 bytes when inflated, found more"),
            std::string::npos);
}

TEST(Inflate, ComputesTheCrc) {
  EXPECT_EQ(crc32_of(as_bytes("123456789")), 0xCBF43926u);
  EXPECT_EQ(crc32_of(as_bytes("56789"), crc32_of(as_bytes("1234"))), 0xCBF43926u);
  EXPECT_TRUE(is_gzip(as_bytes("\x1F\x8B")));
  EXPECT_FALSE(is_gzip(as_bytes("\x1F")));
}

}  // namespace
}  // namespace millstream
