#include "millstream/codec/csv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "millstream/core/error.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

const std::string kAdvice =
    "; read only other columns with columns=, or convert this one to numbers";

const std::string kMissingAdvice =
    "; pass a number as missing= to replace missing values, or missing=\"mask\"";

CsvTable parse(std::string_view characters, const CsvFormat& format = {}) {
  return parse_csv(as_bytes(characters), "x.csv", format);
}

std::string error(std::string_view characters, const CsvFormat& format = {}) {
  return error_of<DataError>([&] { parse(characters, format); });
}

const CsvFormat kBare = {',', false, {}};
using Integers = std::vector<std::int64_t>;
using Reals = std::vector<double>;

TEST(Csv, ReadsIntegersAndReals) {
  const CsvTable table = parse("a,b\n1,2.5\n-3,4\n+5,-6e-3\n");
  ASSERT_EQ(table.rows, 3);
  EXPECT_EQ(table.columns[0].name, "a");
  EXPECT_EQ(table.columns[0].dtype, DType::kInt64);
  EXPECT_EQ(table.columns[0].integers, (Integers{1, -3, 5}));
  EXPECT_EQ(table.columns[1].dtype, DType::kFloat64);
  EXPECT_EQ(table.columns[1].reals, (Reals{2.5, 4, -6e-3}));
}

TEST(Csv, BecomesRealAfterIntegers) {
  const CsvTable table = parse("x\n1\n9007199254740993\n0.5\n");
  EXPECT_EQ(table.columns[0].reals, (Reals{1, 9007199254740992.0, 0.5}));
  EXPECT_EQ(parse("x\n18446744073709551616\n").columns[0].reals,
            (Reals{18446744073709551616.0}));
  EXPECT_EQ(parse("x\n9223372036854775807\n").columns[0].integers,
            (Integers{std::numeric_limits<std::int64_t>::max()}));
  EXPECT_TRUE(std::isnan(parse("x\nnan\n").columns[0].reals[0]));
  EXPECT_TRUE(std::isinf(parse("x\n-inf\n").columns[0].reals[0]));
}

TEST(Csv, KeepsTheSignOfZeroInRealNumbers) {
  const CsvTable table = parse("a,b\n-0.0,-0\n0,1\n0.5,2\n-0,-0\n");
  const std::vector<double>& reals = table.columns[0].reals;
  EXPECT_EQ(reals, (Reals{0, 0, 0.5, 0}));
  EXPECT_TRUE(std::signbit(reals[0]));
  EXPECT_FALSE(std::signbit(reals[1]));
  EXPECT_TRUE(std::signbit(reals[3]));
  EXPECT_EQ(table.columns[1].integers, (Integers{0, 1, 2, 0}));
}

TEST(Csv, ListsAllDamagedLines) {
  const auto defects = [](std::string_view characters, std::size_t most = 9) {
    return csv_defects(as_bytes(characters), "x.csv", {}, most);
  };
  EXPECT_TRUE(defects("a,b\n1,2\n3,4\n").messages.empty());
  const CsvDefects found = defects("a,\"b\nc\"\n1,2\nx,2\n\n1\n1,2,3\n1,2\n1,y");
  ASSERT_EQ(found.messages.size(), 4u);
  EXPECT_EQ(found.last_line, 0);
  for (const auto& [i, line] :
       {std::pair{0u, "line 4,"}, {1u, "line 6,"}, {2u, "line 7,"}, {3u, "line 9,"}}) {
    EXPECT_NE(found.messages[i].find(line), std::string::npos) << found.messages[i];
  }
  EXPECT_EQ(defects("a\nx\nx\nx\n", 2).messages.size(), 2u);
  const CsvDefects open = defects("a,b\n1,\"2\n1,2\nx,2\n");
  EXPECT_EQ(open.messages.size(), 1u);
  EXPECT_EQ(open.last_line, 2);
  const CsvDefects twice = defects("a,b,a\n1,2\n");
  EXPECT_EQ(twice.messages.size(), 1u);
  EXPECT_EQ(twice.last_line, 1);
}

TEST(Csv, SkipsEmptyLinesAndBlanksAroundNumbers) {
  const CsvTable table = parse("\n\r\na,b\n\n1,\t2 \n\r\n\n\t3,4\n\n");
  EXPECT_EQ(table.columns[0].integers, (Integers{1, 3}));
  EXPECT_EQ(table.columns[1].integers, (Integers{2, 4}));
  EXPECT_EQ(parse("\n1,2\n\n3,4", kBare).rows, 2);
  EXPECT_NE(error("a\n\n1\n\nx\n").find("line 5"), std::string::npos);
  EXPECT_NE(error("\n\nx\n", kBare).find("line 3"), std::string::npos);
}

TEST(Csv, EscapesBytesThatAreNotText) {
  EXPECT_EQ(error(std::string_view("a\nx\0\x1B\n", 6)),
            "x.csv: line 2, column 1 ('a'): expected a number, found 'x\\x00\\x1b'" +
                kAdvice);
  EXPECT_EQ(
      error(std::string_view("a\0\nx\n", 5)),
      "x.csv: line 2, column 1 ('a\\x00'): expected a number, found 'x'" + kAdvice);
}

TEST(Csv, RoundsNumbersOutOfRange) {
  const double infinity = std::numeric_limits<double>::infinity();
  const CsvTable table =
      parse("a\n1.5e400\n-1e400\n1.5e-400\n-1e-400\n5e-324\n+2e999\n");
  EXPECT_EQ(table.columns[0].reals,
            (Reals{infinity, -infinity, 0.0, 0.0, 5e-324, infinity}));
  EXPECT_TRUE(std::signbit(table.columns[0].reals[3]));
  EXPECT_NE(error("a\n1e400x\n").find("expected a number"), std::string::npos);
}

TEST(Csv, ReadsQuotesLineEndsAndByteOrderMark) {
  const CsvTable table =
      parse("\xEF\xBB\xBF\"a, \"\"b\"\"\",c\r\n\"1\", 2 \r\n3,\"4.5\"\r\n\r\n");
  ASSERT_EQ(table.rows, 2);
  EXPECT_EQ(table.columns[0].name, "a, \"b\"");
  EXPECT_EQ(table.columns[0].integers, (Integers{1, 3}));
  EXPECT_EQ(table.columns[1].reals, (Reals{2, 4.5}));
}

TEST(Csv, ReadsTablesWithoutHeaderAndWithTabs) {
  const CsvTable table = parse("1\t2\n3\t4", {'\t', false, {}});
  ASSERT_EQ(table.rows, 2);
  EXPECT_EQ(table.columns[1].name, "column1");
  EXPECT_EQ(table.columns[1].integers, (Integers{2, 4}));
}

TEST(Csv, ReadsOnlyTheRequestedColumns) {
  const CsvTable table =
      parse("date,t,u\n\"1981-01-01\",20.7,1\n\"two\nlines\",17.9,2\n",
            {',', true, {{"u"}, {"t"}}});
  ASSERT_EQ(table.columns.size(), 2u);
  EXPECT_EQ(table.columns[0].integers, (Integers{1, 2}));
  EXPECT_EQ(table.columns[1].reals, (Reals{20.7, 17.9}));
  EXPECT_EQ(error_of<ArgumentError>([] {
              parse("a\n1\n", {',', true, {{"b"}}});
            }),
            "x.csv: there is no column 'b'");
}

TEST(Csv, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error("a,b\n1,2\n3,x4\n"),
            "x.csv: line 3, column 2 ('b'): expected a number, found 'x4'" + kAdvice);
  EXPECT_EQ(error("1,2\n3,\n", kBare),
            "x.csv: line 2, column 2: expected a number, found ''" + kMissingAdvice);
  EXPECT_EQ(error("1,2\n3\n", kBare),
            "x.csv: line 2, column 1: expected 2 cells, found 1");
  EXPECT_EQ(error("1,2\n3,4,5\n", kBare),
            "x.csv: line 2, column 2: expected 2 cells, found more");
  EXPECT_EQ(error("1,\"2\n3,4\n", kBare),
            "x.csv: line 1, column 2: expected a closing quote, found the end");
  EXPECT_EQ(error("\"1\"2\n", kBare),
            "x.csv: line 1, column 1: expected the end of the cell after its quote, "
            "found '2'");
  EXPECT_EQ(error("a,t\n\"x\ny\",1\nz,w\n", {',', true, {{"t"}}}),
            "x.csv: line 4, column 2 ('t'): expected a number, found 'w'" + kAdvice);
  EXPECT_EQ(error("a,a\n1,2\n"),
            "x.csv: line 1, column 1 ('a'): expected different column names, found 'a' "
            "twice");
  EXPECT_EQ(error("a,caf\xE9\n1,2\n"),
            "x.csv: line 1, column 2 ('caf\\xe9'): expected a name in UTF-8, found "
            "'caf\\xe9'");
  EXPECT_EQ(error("caf\xC3\xA9\n1\n"), "");
  EXPECT_EQ(error("a,caf\xE9\n1,2\n", {',', true, {{"a"}}}), "");
  EXPECT_EQ(error(""), "x.csv: line 1, column 1: expected a line, found an empty file");
  EXPECT_NE(error("a,b\n").find("found only the header"), std::string::npos);
  EXPECT_NE(error("a\n+-1\n").find("expected a number"), std::string::npos);
  EXPECT_NE(error("a\n0x10\n").find("expected a number"), std::string::npos);
  EXPECT_NE(error("a\n1 2\n").find("expected a number"), std::string::npos);
  EXPECT_THROW(parse("a\n1\n", {'"', true, {}}), ArgumentError);
}

TEST(Csv, ReadsBooleans) {
  using Booleans = std::vector<std::uint8_t>;
  const CsvTable table = parse("a,b\nTrue, false \n\"TRUE\",tRuE\nfalse,False\n");
  EXPECT_EQ(table.columns[0].dtype, DType::kBool);
  EXPECT_EQ(table.columns[0].booleans, (Booleans{1, 1, 0}));
  EXPECT_EQ(table.columns[1].booleans, (Booleans{0, 1, 0}));
  EXPECT_EQ(error("a\ntrue\n1\n"),
            "x.csv: line 3, column 1 ('a'): expected true or false, found '1'; the "
            "cells before it are booleans, and a field holds either booleans or "
            "numbers");
  EXPECT_NE(error("a\ntrue\nyes\n").find("expected true or false, found 'yes'"),
            std::string::npos);
  EXPECT_EQ(error("a\n1\ntrue\n"),
            "x.csv: line 3, column 1 ('a'): expected a number, found 'true'" + kAdvice);
  EXPECT_NE(error("a\n0.5\nfalse\n").find("expected a number, found 'false'"),
            std::string::npos);
  EXPECT_NE(error("a\ntruely\n").find("expected a number"), std::string::npos);
}

TEST(Csv, SkipsComments) {
  CsvFormat format;
  format.comment = '#';
  const CsvTable table =
      parse("# made, by hand\n#\na,b\n#x\n1,2\r\n\n#\r\n3,4\n# \"end", format);
  ASSERT_EQ(table.rows, 2);
  EXPECT_EQ(table.columns[0].name, "a");
  EXPECT_EQ(table.columns[1].integers, (Integers{2, 4}));
  EXPECT_NE(error("#\na\n#\n\nx\n", format).find("line 5,"), std::string::npos);
  EXPECT_NE(error("a\n #\n", format).find("found ' #'"), std::string::npos);
  EXPECT_EQ(error("a,n\n1,\"x\n#y\"\n#\n2,z\n#", {',', true, {{"a"}}, '#'}), "");
  EXPECT_NE(error("# a\n#", format).find("found an empty file"), std::string::npos);
  EXPECT_NE(error("a\n#1\n", format).find("found only the header"), std::string::npos);
  EXPECT_EQ(parse("#a\n1\n").columns[0].name, "#a");
  for (const char bad : {',', '"', '\n', '\r'}) {
    format.comment = bad;
    EXPECT_THROW(parse("a\n1\n", format), ArgumentError);
  }
  format.comment = '#';
  const CsvDefects found = csv_defects(as_bytes("#\na\n#\nx\n#\n1\n#"), "x", format, 9);
  ASSERT_EQ(found.messages.size(), 1u);
  EXPECT_NE(found.messages[0].find("line 4,"), std::string::npos);
}

TEST(Csv, FillsMissingValues) {
  CsvFormat format;
  format.missing = -1;
  const CsvTable table = parse("a,b,c\n1,,\nNA,0.5,\n n/a ,null,\"\"\n", format);
  EXPECT_EQ(table.columns[0].integers, (Integers{1, -1, -1}));
  EXPECT_EQ(table.columns[1].reals, (Reals{-1, 0.5, -1}));
  EXPECT_EQ(table.columns[2].integers, (Integers{-1, -1, -1}));
  EXPECT_TRUE(table.columns[0].present.empty());
  EXPECT_EQ(parse("a\nnan\n2\n NaN \n", format).columns[0].integers,
            (Integers{-1, 2, -1}));
  EXPECT_EQ(parse("a\n0.5\nNAN\n", format).columns[0].reals, (Reals{0.5, -1}));
  EXPECT_NE(error("a\nnone\n", format).find("expected a number"), std::string::npos);
  format.missing = 0.5;
  EXPECT_EQ(parse("a\n1\nNA\n", format).columns[0].reals, (Reals{1, 0.5}));
  EXPECT_EQ(parse("a\nNA\n1\n", format).columns[0].reals, (Reals{0.5, 1}));
  EXPECT_EQ(parse("a\n1\n2\n", format).columns[0].integers, (Integers{1, 2}));
  format.missing = 1e300;
  EXPECT_EQ(parse("a\n1\nNA\n", format).columns[0].reals, (Reals{1, 1e300}));
  EXPECT_EQ(error("a\nNULL\n"),
            "x.csv: line 2, column 1 ('a'): expected a number, found 'NULL'" +
                kMissingAdvice);
}

TEST(Csv, FillsMissingBooleans) {
  using Booleans = std::vector<std::uint8_t>;
  CsvFormat format;
  format.missing = 1;
  EXPECT_EQ(parse("a\nNA\nfalse\nNA\n", format).columns[0].booleans,
            (Booleans{1, 0, 1}));
  format.missing = 0;
  EXPECT_EQ(parse("a\nNA\nNA\ntrue\n", format).columns[0].booleans,
            (Booleans{0, 0, 1}));
  for (const double wrong : {-1.0, 0.5, std::nan("")}) {
    format.missing = wrong;
    for (const auto* cells : {"a\nNA\ntrue\n", "a\ntrue\nNA\n"}) {
      EXPECT_NE(error(cells, format).find("missing= must be 0, 1 or \"mask\""),
                std::string::npos);
    }
  }
}

TEST(Csv, AnErrorForABooleanDoesNotContradictItself) {
  CsvFormat format;
  format.missing = -1;
  EXPECT_EQ(error("a\ntrue\n", format),
            "x.csv: line 2, column 1 ('a'): expected a number, because missing= is "
            "one, found 'true'; missing= must be 0, 1 or \"mask\" if a field holds "
            "booleans");
}

TEST(Csv, ErrorsNameTheOptionForComments) {
  const std::string advice =
      "if lines that begin with '#' are comments, pass comment=\"#\"";
  EXPECT_EQ(
      error("# two sensors\n1,2\n"),
      "x.csv: line 2, column 1 ('# two sensors'): expected 1 cells, found more; " +
          advice);
  EXPECT_NE(error("#a\nx\n").find("; " + advice), std::string::npos);
  EXPECT_EQ(error("a\n#b\n").find(advice), std::string::npos);
  CsvFormat format;
  format.comment = '#';
  EXPECT_EQ(error("#\na\nx\n", format).find(advice), std::string::npos);
  format = {};
  format.fields = {{"a"}};
  const std::string missing =
      error_of<ArgumentError>([&] { parse("#\na\n1\n", format); });
  EXPECT_NE(missing.find("there is no column 'a'; " + advice), std::string::npos);
}

TEST(Csv, MarksMissingValues) {
  using Booleans = std::vector<std::uint8_t>;
  CsvFormat format;
  format.missing = 0;
  format.mask = true;
  const CsvTable table = parse("a,b,c\nNA,1,true\n2,1,\n3,1.5,NA\n", format);
  EXPECT_EQ(table.columns[0].integers, (Integers{0, 2, 3}));
  EXPECT_EQ(table.columns[0].present, (Booleans{0, 1, 1}));
  EXPECT_EQ(table.columns[1].present, (Booleans{1, 1, 1}));
  EXPECT_EQ(table.columns[2].booleans, (Booleans{1, 0, 0}));
  EXPECT_EQ(table.columns[2].present, (Booleans{1, 0, 0}));
}

TEST(Csv, ReadsSeveralColumnsAsOneArray) {
  const std::string_view lines = "l,p,q,r\n7,1,2,3\n8,4,5,6\n";
  const auto array = [&](std::vector<CsvReference> columns) {
    return parse(lines, {',', true, {{"x", std::move(columns), true}}}).columns[0];
  };
  EXPECT_EQ(array({CsvRange{1, 4}}).integers, (Integers{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(array({CsvRange{1, 4}}).shape, Shape{3});
  EXPECT_EQ(array({CsvRange{-2}}).integers, (Integers{2, 3, 5, 6}));
  EXPECT_EQ(array({CsvRange{0, {}, 2}}).integers, (Integers{7, 2, 8, 5}));
  EXPECT_EQ(array({CsvRange{0, -1, 9}}).integers, (Integers{7, 8}));
  EXPECT_EQ(array({"r", 0, -2, "r"}).integers, (Integers{3, 7, 2, 3, 6, 8, 5, 6}));
  EXPECT_EQ(array({"q"}).shape, Shape{1});
  const CsvTable table = parse(
      "1,2,3,4\n5,6,0.5,8\n",
      {',', false, {{"x", {CsvRange{0, 3}}, true}, {"y", {3}}, {"z", {"column0"}}}});
  EXPECT_EQ(table.columns[0].reals, (Reals{1, 2, 3, 5, 6, 0.5}));
  EXPECT_EQ(table.columns[1].integers, (Integers{4, 8}));
  EXPECT_EQ(table.columns[1].shape, Shape{});
  EXPECT_EQ(table.columns[2].integers, (Integers{1, 5}));
}

TEST(Csv, RejectsWrongArrays) {
  const auto wrong = [](std::vector<CsvReference> columns, bool is_array = true) {
    return error_of<ArgumentError>([&] {
      parse("a,b\n1,2\n", {',', true, {{"x", columns, is_array}}});
    });
  };
  EXPECT_EQ(wrong({2}),
            "x.csv: columns: there is no column 2 for 'x': the table has 2 columns");
  EXPECT_EQ(wrong({-3}),
            "x.csv: columns: there is no column -3 for 'x': the table has 2 columns");
  EXPECT_EQ(wrong({CsvRange{0, 5}}),
            "x.csv: columns: there is no column 4 for 'x': the table has 2 columns");
  EXPECT_EQ(wrong({CsvRange{1, 1}}),
            "x.csv: columns: the slice of 'x' selects none of 2 columns");
  EXPECT_EQ(wrong({CsvRange{0, 2, 0}}),
            "x.csv: columns: the slice of 'x' selects none of 2 columns");
  EXPECT_EQ(wrong({"c"}), "x.csv: there is no column 'c'");
  EXPECT_EQ(wrong({0, 1}, false),
            "'x' needs one column, not 2; read several as an array");
  EXPECT_NE(error("a,b\n1,true\n", {',', true, {{"x", {CsvRange{}}, true}}})
                .find("line 2, column 2 ('b'): expected a number"),
            std::string::npos);
}

}  // namespace
}  // namespace millstream
