#include "millstream/source/csv.h"

#include <gtest/gtest.h>

#include "millstream/core/error.h"
#include "source/source_conformance.h"

namespace millstream {
namespace {

const std::string kAdvice =
    "; read only other columns with columns=, or convert this one to numbers";

const TrueField kA = {{"a", DType::kInt64, {}},
                      raw_all(std::vector<std::int64_t>{1, -2, 30, 4})};
const TrueField kB = {{"b", DType::kFloat64, {}},
                      raw_all(std::vector<double>{0.5, 1e-3, 7, -2.25})};

INSTANTIATE_TEST_SUITE_P(
    Csv, SourceConformance,
    testing::Values(
        SourceCase{"Commas",
                   {kA, kB},
                   [](const TemporaryFolder& folder) {
                     return std::make_shared<ArraysSource>(csv_source(folder.write(
                         "x.csv", "a,b\n1,0.5\n-2,1e-3\n30,7\n4,-2.25\n")));
                   }},
        SourceCase{"Tabs",
                   {kB},
                   [](const TemporaryFolder& folder) {
                     return std::make_shared<ArraysSource>(
                         csv_source(folder.write("x.tsv",
                                                 "day\tb\r\nmon\t0.5\r\ntue\t1e-3\r\n"
                                                 "wed\t7\r\nthu\t-2.25\r\n"),
                                    CsvFormat{'\t', true, {{"b"}}}));
                   }},
        SourceCase{"ArrayAndMask",
                   {{{"x", DType::kFloat64, {2}},
                     raw_all(std::vector<double>{0.5, 7, 1e-3, 0})},
                    {{"y", DType::kBool, {}}, std::string("\1\0", 2)},
                    {{"x_present", DType::kBool, {2}}, std::string("\1\1\1\0", 4)},
                    {{"y_present", DType::kBool, {}}, std::string("\1\0", 2)}},
                   [](const TemporaryFolder& folder) {
                     CsvFormat format;
                     format.fields = {{"x", {CsvRange{1}}, true}, {"y", {0}}};
                     format.missing = 0;
                     format.mask = true;
                     return std::make_shared<ArraysSource>(csv_source(
                         folder.write("x.csv", "l,p,q\ntrue,0.5,7\n,1e-3,NA\n"),
                         format));
                   }}),
    case_name);

TEST(CsvSource, IsInMemory) {
  const TemporaryFolder folder;
  const ArraysSource source = csv_source(folder.write("x.csv", "a\n1\n2\n"));
  EXPECT_EQ(source.traits(), Traits{});
  EXPECT_EQ(source.size(), 2);
}

TEST(CsvSource, RejectsAMaskWithTheNameOfAField) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.csv", "a_present,a\n1,2\n");
  CsvFormat format;
  format.missing = 0;
  format.mask = true;
  EXPECT_EQ(error_of<ArgumentError>([&] { csv_source(path, format); }),
            path.string() +
                ": the mask of 'a' would be called 'a_present', as another field is; "
                "give that field another name with columns={name: column}");
}

TEST(CsvSource, ErrorsNameTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.csv", "a\n1\noops\n");
  EXPECT_EQ(error_of<DataError>([&] { csv_source(path); }),
            path.string() +
                ": line 3, column 1 ('a'): expected a number, found 'oops'" + kAdvice);
  EXPECT_THROW(csv_source(folder.path()), DataError);
}

}  // namespace
}  // namespace millstream
