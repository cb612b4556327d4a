#include "millstream/core/characters.h"

#include <gtest/gtest.h>

namespace millstream {
namespace {

TEST(Characters, RecognizesUtf8) {
  for (const std::string_view good :
       {"", "plain", "\xC2\x80", "caf\xC3\xA9", "\xE0\xA0\x80", "\xEF\xBF\xBF",
        "\xED\x9F\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const std::string_view bad :
       {"\x80", "caf\xE9", "\xC3", "\xC3(", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xE2\x82", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5",
        "\xFF"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

TEST(Characters, QuoteBytes) {
  EXPECT_EQ(quote_bytes(std::string_view("a \\\x93\0~", 6)), "'a \\x5c\\x93\\x00~'");
  EXPECT_EQ(quote_bytes("caf\xC3\xA9\t\x7F"), "'caf\xC3\xA9\\x09\\x7f'");
}

}  // namespace
}  // namespace millstream
