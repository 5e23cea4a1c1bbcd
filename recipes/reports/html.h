// Parts of a page that is one file: text, pictures and what a browser may load and run of it.
#pragma once

#include <string>
#include <string_view>

namespace steelyard {

// `text` for HTML and XML: & < > " ' as entities; control characters and what is not UTF-8 in the
// escaped form of printable().
std::string html_escaped(std::string_view text);

// RFC 4648, with "=" at its end.
std::string base64(std::string_view bytes);

// The classes of shares of a whole in steps of a percent, for share_class(): each sets the CSS
// variable --share. Style attributes would need a policy that allows those of others too.
std::string share_rules();
// "s37" for .37.
std::string share_class(double share);

// A <style> element behind the policy (CSP 3) with which a browser takes no other style, no script
// and nothing from elsewhere: pictures lie in the page itself.
std::string policy_and_style(const std::string& css);

}  // namespace steelyard
