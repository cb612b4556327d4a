#pragma once

#include <string>
#include <vector>

#include "temporary_folder.h"

namespace millstream {

/// A CIFAR batch as Python 2 pickles it with protocol 2. An image has 3072 bytes.
struct PickledBatch {
  std::string images;
  std::vector<std::pair<std::string, std::vector<int>>> labels;

  std::string protocol2() const {
    const auto count = static_cast<std::uint16_t>(images.size() / 3072);
    std::string out =
        "\x80\x02}q\x01(U\x0B"
        "batch_labelq\x02U\x05"
        "batchq\x03";
    for (const auto& [key, values] : labels) {
      out += std::string("U") + static_cast<char>(key.size()) + key + "]q\x04(";
      for (const int value : values) out += std::string("K") + static_cast<char>(value);
      out += "e";
    }
    out +=
        "U\x04"
        "dataq\x06"
        "cnumpy.core.multiarray\n_reconstruct\nq\x07";
    out += "cnumpy\nndarray\nq\x08K" + std::string(1, '\0') +
           "\x85U\x01"
           "b\x87Rq\x09";
    out += "(K\x01M" + raw(count) + "M" + raw(std::uint16_t{3072}) + "\x86";
    out +=
        "cnumpy\ndtype\nU\x02u1K" + std::string(1, '\0') + "K\x01\x87R(K\x03U\x01|NNN";
    out += "J\xFF\xFF\xFF\xFFJ\xFF\xFF\xFF\xFFK" + std::string(1, '\0') + "tb\x89";
    out += "T" + raw(static_cast<std::uint32_t>(images.size())) + images + "tbu.";
    return out;
  }

  /// The batch as Python 3 pickles it with protocol 2: bytes become text.
  std::string python3_protocol2() const {
    std::string out = protocol2();
    std::string utf8;
    for (const char c : images) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x80) {
        utf8 += c;
      } else {
        utf8 += static_cast<char>(0xC0 | byte >> 6);
        utf8 += static_cast<char>(0x80 | (byte & 0x3F));
      }
    }
    const auto sized = [](char code, const std::string& bytes) {
      std::string value(1, code);
      value += raw(static_cast<std::uint32_t>(bytes.size()));
      value += bytes;
      return value;
    };
    std::string call = "c_codecs\nencode\n";
    call += sized('X', utf8);
    call += sized('X', "latin1");
    call += "\x86R";
    const std::string stored = sized('T', images);
    out.replace(out.find(stored), stored.size(), call);
    return out;
  }

  /// The batch as Python 3 pickles it with protocol 5.
  std::string protocol5() const {
    const auto count = static_cast<std::uint16_t>(images.size() / 3072);
    const auto word = [](const std::string& value) {
      return "\x8C" + std::string(1, static_cast<char>(value.size())) + value + "\x94";
    };
    std::string out = "\x80\x05\x95" + std::string(8, '\0') + "}\x94(";
    out +=
        "C\x04"
        "data\x94" +
        word("numpy._core.numeric") + word("_frombuffer") + "\x93\x94(\x96" +
        raw(std::uint64_t{images.size()}) + images + "\x94";
    out += word("numpy") + word("dtype") + "\x93\x94" + word("u1") +
           "\x89\x88\x87\x94R\x94(K\x03" + word("|") + "NNN";
    out += "J\xFF\xFF\xFF\xFFJ\xFF\xFF\xFF\xFFK" + std::string(1, '\0') +
           "t\x94"
           "b";
    out += "M" + raw(count) + "M" + raw(std::uint16_t{3072}) + "\x86\x94" + word("C") +
           "t\x94R\x94";
    for (const auto& [key, values] : labels) {
      out += std::string("C") + std::string(1, static_cast<char>(key.size())) + key +
             "\x94]\x94(";
      for (const int value : values) out += std::string("K") + static_cast<char>(value);
      out += "e";
    }
    return out + "u.";
  }
};

/// One entry of a tar file: header and padded data.
inline std::string tar_entry(const std::string& name, const std::string& bytes,
                             char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  char size[13];
  std::snprintf(size, sizeof size, "%011o", static_cast<unsigned>(bytes.size()));
  header.replace(124, 11, size);
  header[156] = type;
  header.replace(257, 5, "ustar");
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(size, sizeof size, "%06o", sum);
  header.replace(148, 6, size);
  header[154] = '\0';
  std::string padded = bytes;
  padded.resize((bytes.size() + 511) / 512 * 512, '\0');
  return header + padded;
}

}  // namespace millstream
